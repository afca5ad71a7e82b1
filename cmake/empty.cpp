// Keeps a room that has no source file yet a valid library.
