// Words of commands that are shown to be copied.

// As a shell reads it back, whatever stands in it.
export const word = (text: string) => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);

export const line = (...words: string[]) => words.map(word).join(" ");
