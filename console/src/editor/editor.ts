// The editor, a chunk of its own. It lives in a shadow root: there its styles are style sheet objects, which a strict content
// security policy allows, where `<style>` elements are not.

import { autocompletion, closeBrackets, closeBracketsKeymap, completionKeymap } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
import { bracketMatching, syntaxHighlighting } from "@codemirror/language";
import { type Diagnostic, lintGutter, setDiagnostics } from "@codemirror/lint";
import { MergeView, unifiedMergeView } from "@codemirror/merge";
import { EditorState, type Extension, type Text } from "@codemirror/state";
import {
  drawSelection,
  EditorView,
  highlightActiveLine,
  highlightActiveLineGutter,
  highlightSpecialChars,
  keymap,
  lineNumbers,
} from "@codemirror/view";
import { cedar, cedarColours, completionOf, type KnownTool } from "./cedar.js";

const UNSEEN = /[\p{Cf}\p{Zl}\p{Zp}\p{Co}\p{Default_Ignorable_Code_Point}⠀]|(?! )\p{Zs}/gu;

const look = EditorView.theme({
  "&": { fontSize: "13px", backgroundColor: "var(--card)", color: "var(--ink)", height: "100%" },
  "&.cm-focused": { outline: "2px solid var(--accent)", outlineOffset: "-2px" },
  ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "1.55" },
  ".cm-gutters": { backgroundColor: "var(--sunken)", color: "var(--soft)", borderRight: "1px solid var(--line)" },
  ".cm-activeLine, .cm-activeLineGutter": { backgroundColor: "var(--hover)" },
  ".cm-cursor": { borderLeftColor: "var(--ink)" },
  ".cm-selectionBackground, &.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground": {
    backgroundColor: "var(--accent-soft)",
  },
  ".cm-tooltip": { backgroundColor: "var(--raised)", color: "var(--ink)", border: "1px solid var(--line)" },
  ".cm-tooltip-autocomplete ul li[aria-selected]": { backgroundColor: "var(--accent-fill)", color: "#fff" },
  ".cm-completionDetail": { fontStyle: "normal", color: "inherit" },
  ".cm-specialChar": { color: "var(--ink)", backgroundColor: "var(--mark)" },
  ".cm-deletedChunk, .cm-merge-a .cm-changedLine": { backgroundColor: "var(--bad-soft)" },
  ".cm-merge-b .cm-changedLine, .cm-changedLine": { backgroundColor: "var(--good-soft)" },
  ".cm-collapsedLines": { background: "var(--sunken)", color: "var(--soft)" },
});

/** Characters that do not show are drawn as their escapes. */
const unseen = highlightSpecialChars({
  addSpecialChars: UNSEEN,
  render: (code) => {
    const mark = document.createElement("span");
    mark.className = "cm-specialChar";
    mark.textContent = `\\u${code.toString(16).padStart(4, "0")}`;
    return mark;
  },
});

const shown: Extension = [lineNumbers(), unseen, drawSelection(), cedar, syntaxHighlighting(cedarColours), look];

export interface Finding {
  readonly line: number;
  readonly column: number;
  readonly message: string;
  readonly isWarning: boolean;
}

export interface Editor {
  set(text: string): void;
  show(findings: readonly Finding[]): void;
  reveal(line: number, column: number): void;
  destroy(): void;
}

interface EditorOptions {
  readonly text: string;
  readonly label: string;
  readonly isReadOnly: boolean;
  readonly tools: () => readonly KnownTool[];
  readonly onChange: (text: string) => void;
}

export function mountEditor(host: HTMLElement, options: EditorOptions): Editor {
  const root = rootOf(host);
  const view = new EditorView({
    root,
    parent: containerIn(root),
    state: EditorState.create({
      doc: options.text,
      extensions: [
        shown,
        EditorView.contentAttributes.of({ "aria-label": options.label }),
        EditorState.readOnly.of(options.isReadOnly),
        history(),
        bracketMatching(),
        closeBrackets(),
        highlightActiveLine(),
        highlightActiveLineGutter(),
        lintGutter(),
        autocompletion({ override: [completionOf(options.tools)], icons: false }),
        // Tab moves the focus on, so that the keyboard leaves the editor.
        keymap.of([...closeBracketsKeymap, ...completionKeymap, ...historyKeymap, ...defaultKeymap]),
        EditorView.lineWrapping,
        EditorView.updateListener.of(({ docChanged, state }) => {
          if (docChanged) options.onChange(state.doc.toString());
        }),
      ],
    }),
  });
  return {
    set: (text) => {
      if (view.state.doc.toString() !== text) {
        view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: text } });
      }
    },
    show: (findings) => {
      const { doc } = view.state;
      view.dispatch(
        setDiagnostics(
          view.state,
          findings.map((finding) => diagnosticOf(doc, finding)),
        ),
      );
    },
    reveal: (line, column) => {
      const { from } = placeOf(view.state.doc, line, column);
      view.dispatch({ selection: { anchor: from }, scrollIntoView: true });
      view.focus();
    },
    destroy: () => view.destroy(),
  };
}

/** Two texts side by side, or one after the other on a narrow screen. */
export function mountMerge(host: HTMLElement, before: string, after: string, isNarrow: boolean): () => void {
  const root = rootOf(host);
  const parent = containerIn(root);
  const readOnly = [shown, EditorState.readOnly.of(true), EditorView.editable.of(false), EditorView.lineWrapping];
  const collapseUnchanged = { margin: 3, minSize: 6 };
  if (isNarrow) {
    const unified = unifiedMergeView({ original: before, mergeControls: false, collapseUnchanged });
    const view = new EditorView({ root, parent, doc: after, extensions: [...readOnly, unified] });
    return () => view.destroy();
  }
  const view = new MergeView({
    root,
    parent,
    a: { doc: before, extensions: readOnly },
    b: { doc: after, extensions: readOnly },
    collapseUnchanged,
  });
  return () => view.destroy();
}

function rootOf(host: HTMLElement): ShadowRoot {
  const root = host.shadowRoot ?? host.attachShadow({ mode: "open" });
  root.replaceChildren();
  return root;
}

function containerIn(root: ShadowRoot): HTMLElement {
  const parent = document.createElement("div");
  root.append(parent);
  return parent;
}

function placeOf(doc: Text, line: number, column: number): { from: number; to: number } {
  const at = doc.line(Math.max(1, Math.min(line, doc.lines)));
  const from = Math.min(at.to, at.from + Math.max(0, column - 1));
  return { from, to: at.to };
}

function diagnosticOf(doc: Text, { line, column, message, isWarning }: Finding): Diagnostic {
  return { ...placeOf(doc, line, column), message, severity: isWarning ? "warning" : "error" };
}
