// Letters between replicas: for the few things that only the replica can do that has the connection in its hands.

import { randomBytes } from "node:crypto";
import type { Engine } from "../sql.js";
import type { ReplicaMessages } from "../types.js";
import { checkName, checkSize } from "./bounds.js";

const MAX_BYTES = 16 * 1024 * 1024;

export function lettersIn(engine: Engine): ReplicaMessages {
  return {
    async post(to, text, ttlMs) {
      checkName("the address of a letter", to);
      checkSize("a letter", Buffer.byteLength(text), MAX_BYTES);
      const id = randomBytes(12).toString("base64url");
      await engine.write(async (sql, note) => {
        await sql.all(
          "INSERT INTO letters (id, addressee, text, expires_at) VALUES ($1, $2, $3, @now + CAST($4 AS BIGINT))",
          [id, to, text, Math.ceil(ttlMs)],
        );
        note({ topic: "letter", action: "put", app: to, name: id, by: "gateway" });
      });
    },

    async read(id) {
      const [row] = await engine.read((sql) =>
        sql.all("SELECT text FROM letters WHERE id = $1 AND expires_at > @now", [id]),
      );
      return row?.text as string | undefined;
    },
  };
}
