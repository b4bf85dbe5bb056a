const PATHS = {
  overview: "M4 13h7V4H4zM13 20h7v-9h-7zM4 20h7v-5H4zM13 9h7V4h-7z",
  approvals: "M9 12l2.2 2.2L15.5 10M12 3l7.5 3v5.5c0 4.6-3.1 8-7.5 9.5-4.400-1.500-7.500-4.900-7.500-9.500V6z",
  decisions: "M4 6h2M4 12h2M4 18h2M9.500 6H20M9.500 12H20M9.500 18H20",
  policy: "M6 3h8l4.500 4.500V21H6zM14 3v5h4.500M9 13h6M9 17h4",
  servers: "M4 5h16v6H4zM4 13h16v6H4zM7.500 8h.01M7.500 16h.01M11 8h6M11 16h6",
  applications: "M15 8a3 3 0 1 1-6 0 3 3 0 0 1 6 0zM5 20c.6-4 3.300-6 7-6s6.400 2 7 6z",
  lattice: "M12 5.500L6 12l6 6.500L18 12zM12 3v3M12 18v3M3 12h3M18 12h3",
  ledger: "M5 4h14v16H5zM5 9h14M5 14h14M9 4v16",
  sun: "M12 16a4 4 0 1 0 0-8 4 4 0 0 0 0 8zM12 2.500v2M12 19.500v2M2.500 12h2M19.500 12h2M5.300 5.300l1.400 1.400M17.300 17.300l1.400 1.400M18.700 5.300l-1.400 1.400M6.700 17.300l-1.400 1.400",
  moon: "M20 14.500A8 8 0 0 1 9.500 4a8 8 0 1 0 10.500 10.500z",
  system: "M4 5h16v11H4zM9 20h6M12 16v4",
  more: "M5 12h.01M12 12h.01M19 12h.01",
  close: "M6 6l12 12M18 6L6 18",
  back: "M14.500 5L8 12l6.500 7",
  check: "M5 12.500l4.500 4.500L19 7.500",
  deny: "M6.300 6.300l11.400 11.400M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18z",
  clock: "M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18zM12 7.500V12l3 2",
  warning: "M12 4L2.800 19.500h18.400zM12 10v4.500M12 17h.01",
  copy: "M9 9h11v11H9zM5 15H4V4h11v1",
  download: "M12 4v11M7.500 11L12 15.500 16.500 11M4.500 20h15",
  plus: "M12 5v14M5 12h14",
  keyboard: "M3 7h18v10H3zM7 10.500h.01M10.300 10.500h.01M13.700 10.500h.01M17 10.500h.01M8 14h8",
  exit: "M10 4H5v16h5M14 8l4.500 4-4.500 4M9.500 12h9",
} as const;

export type IconName = keyof typeof PATHS;

/** Icons accompany a text; alone they are hidden from assistive technology. */
export function Icon({ name }: { name: IconName }) {
  return (
    <svg class="icon" viewBox="0 0 24 24" aria-hidden="true" focusable="false">
      <path d={PATHS[name]} />
    </svg>
  );
}
