/** The generated pages, with the text that they should have. */
export function referencePages(): { page: string; text: string }[];
