// A list of which only the rows in view exist. Rows have one height, so a list may have millions of them.

import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

/** Browsers bound the height of an element; a longer list is scrolled in larger steps. */
const MAX_HEIGHT = 8_000_000;
const OVERSCAN = 8;

interface VirtualListProps {
  total: number;
  rowHeight: number;
  label: string;
  row: (index: number) => ComponentChildren;
  /** The row that the keyboard is on. */
  selected?: number;
  onSelect?: (index: number) => void;
  onOpen?: (index: number) => void;
  /** The rows in view changed. */
  onView?: (first: number, last: number) => void;
}

export function VirtualList({
  total,
  rowHeight,
  label,
  row,
  selected = -1,
  onSelect,
  onOpen,
  onView,
}: VirtualListProps) {
  const ref = useRef<HTMLDivElement>(null);
  const [top, setTop] = useState(0);
  const [height, setHeight] = useState(600);
  const whole = total * rowHeight;
  const drawn = Math.min(whole, MAX_HEIGHT);
  /** Pixels of the list for each pixel of the scroll bar. */
  const scale = drawn > height ? (whole - height) / (drawn - height) : 1;
  const offset = top * scale;
  const first = Math.max(0, Math.floor(offset / rowHeight) - OVERSCAN);
  const last = Math.min(total - 1, Math.ceil((offset + height) / rowHeight) + OVERSCAN);

  useLayoutEffect(() => {
    const element = ref.current as HTMLDivElement;
    const observer = new ResizeObserver(() => setHeight(element.clientHeight));
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  useEffect(() => onView?.(first, last), [first, last, total]);

  const reveal = (index: number): void => {
    const element = ref.current as HTMLDivElement;
    const at = index * rowHeight;
    if (at < offset) element.scrollTop = at / scale;
    else if (at + rowHeight > offset + height) element.scrollTop = (at + rowHeight - height) / scale;
  };
  const move = (to: number): void => {
    const index = Math.max(0, Math.min(total - 1, to));
    onSelect?.(index);
    reveal(index);
  };
  const pressed = (event: KeyboardEvent): void => {
    const page = Math.max(1, Math.floor(height / rowHeight) - 1);
    const moves: Record<string, number> = {
      ArrowDown: selected + 1,
      ArrowUp: selected - 1,
      PageDown: selected + page,
      PageUp: selected - page,
      Home: 0,
      End: total - 1,
    };
    const to = moves[event.key];
    if (to !== undefined && total > 0) {
      event.preventDefault();
      move(to);
    } else if (event.key === "Enter" && selected >= 0) {
      event.preventDefault();
      onOpen?.(selected);
    }
  };
  useEffect(() => {
    if (selected >= 0 && selected < total) reveal(selected);
  }, [selected]);

  return (
    <div
      ref={ref}
      class="virtual"
      role="listbox"
      aria-label={label}
      aria-activedescendant={selected >= first && selected <= last ? `row-${selected}` : undefined}
      tabIndex={0}
      onScroll={(event) => setTop(event.currentTarget.scrollTop)}
      onKeyDown={pressed}
    >
      <div class="virtual-sizer" role="presentation" style={{ height: `${drawn}px` }}>
        {Array.from({ length: Math.max(0, last - first + 1) }, (_row, i) => {
          const index = first + i;
          return (
            <div
              key={index}
              id={`row-${index}`}
              role="option"
              aria-selected={index === selected}
              aria-posinset={index + 1}
              aria-setsize={total}
              class="virtual-row"
              style={{ height: `${rowHeight}px`, transform: `translateY(${index * rowHeight - offset + top}px)` }}
              onClick={() => {
                onSelect?.(index);
                onOpen?.(index);
              }}
            >
              {row(index)}
            </div>
          );
        })}
      </div>
    </div>
  );
}
