// Server-sent events of an answer to a POST, which EventSource cannot ask for.

export async function readEvents(body: ReadableStream<Uint8Array>, hear: (event: string, data: unknown) => void | Promise<void>) {
  const reader = body.pipeThrough(new TextDecoderStream() as ReadableWritablePair<string, Uint8Array>).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    rest += value;
    for (let end = rest.indexOf("\n\n"); end >= 0; end = rest.indexOf("\n\n")) {
      const event = /^event: (\w+)\ndata: (.*)$/s.exec(rest.slice(0, end));
      rest = rest.slice(end + 2);
      if (event) await hear(event[1]!, JSON.parse(event[2]!));
    }
  }
}
