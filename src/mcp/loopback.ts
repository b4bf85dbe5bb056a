// Which addresses and names mean this machine and nothing else.

/** The address of a peer on a Unix socket, which has none. */
export const UNIX_PEER = "unix";

const BYTE = "(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)";
const LOOPBACK = new RegExp(`^(?:(?:::ffff:)?127(?:\\.${BYTE}){3}|::1|(?:0{1,4}:){7}0{0,3}1)$`, "i");

/** `127.0.0.0/8`, `::1`, the former mapped into IPv6, or the peer of a Unix socket. */
export function isLoopbackAddress(address: string): boolean {
  return address === UNIX_PEER || LOOPBACK.test(address);
}

/** A host as it is written in an option or a header: `localhost`, `[::1]:7420`, `127.0.0.1`. */
export function isLoopbackHost(host: string): boolean {
  const bracketed = /^\[([^\]]*)\](?::\d*)?$/.exec(host)?.[1];
  const isBareIPv6 = host.indexOf(":") !== host.lastIndexOf(":");
  const name = bracketed ?? (isBareIPv6 ? host : host.replace(/:\d*$/, ""));
  return name.toLowerCase() === "localhost" || LOOPBACK.test(name);
}
