// The editor as a component; its code is loaded when it is shown first.

import { useEffect, useRef, useState } from "preact/hooks";
import type { KnownTool } from "./cedar.js";
import type { Editor, Finding } from "./editor.js";

interface CodeEditorProps {
  text: string;
  label: string;
  isReadOnly?: boolean;
  tools?: readonly KnownTool[];
  findings?: readonly Finding[];
  /** A place to go to; a new object goes there again. */
  goTo?: { readonly line: number; readonly column: number } | undefined;
  onChange?: (text: string) => void;
}

export function CodeEditor(props: CodeEditorProps) {
  const { text, label, isReadOnly = false, findings = [], goTo } = props;
  const host = useRef<HTMLDivElement>(null);
  const latest = useRef(props);
  latest.current = props;
  const [editor, setEditor] = useState<Editor>();
  useEffect(() => {
    let isGone = false;
    let mounted: Editor | undefined;
    void import("./editor.js").then(({ mountEditor }) => {
      if (isGone || !host.current) return;
      mounted = mountEditor(host.current, {
        text: latest.current.text,
        label,
        isReadOnly,
        tools: () => latest.current.tools ?? [],
        onChange: (changed) => latest.current.onChange?.(changed),
      });
      setEditor(mounted);
    });
    return () => {
      isGone = true;
      mounted?.destroy();
    };
  }, [label, isReadOnly]);
  useEffect(() => editor?.set(text), [editor, text]);
  useEffect(() => editor?.show(findings), [editor, findings]);
  useEffect(() => {
    if (goTo) editor?.reveal(goTo.line, goTo.column);
  }, [editor, goTo]);
  return <div ref={host} class="editor" />;
}

const NARROW = matchMedia("(max-width: 48rem)");

export function Merge({ before, after }: { before: string; after: string }) {
  const host = useRef<HTMLDivElement>(null);
  useEffect(() => {
    let isGone = false;
    let destroy: (() => void) | undefined;
    void import("./editor.js").then(({ mountMerge }) => {
      if (!isGone && host.current) destroy = mountMerge(host.current, before, after, NARROW.matches);
    });
    return () => {
      isGone = true;
      destroy?.();
    };
  }, [before, after]);
  return <div ref={host} class="editor merge" />;
}
