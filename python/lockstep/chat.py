"""A conversation with a model that stays loaded, as text comes."""
from __future__ import annotations

import json
import subprocess
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from typing import IO, Any

from .errors import LockstepError
from .program import open_program, words_of
from .text import Completion


class Chat:
    """with lockstep.Chat(model=DIR) as chat: chat.say("What is a tide?")

    Takes what lockstep.generate takes of a model and of how words are chosen. `messages` is what was said so far; it may be changed.
    """

    def __init__(self, *, system: str | None = None, max_new_tokens: int | None = None, stop: str | Sequence[str] = (), load_in_4bit: bool = False,
                 load_in_8bit: bool = False, **settings: Any) -> None:
        if max_new_tokens is not None:
            settings.setdefault("max_tokens", max_new_tokens)
        flags = [flag for flag, on in (("--load-in-4bit", load_in_4bit), ("--load-in-8bit", load_in_8bit)) if on]
        for text in [stop] if isinstance(stop, str) else stop:
            flags += ["--stop", text]
        self.messages: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []
        self.finish = ""  # why the last answer ended
        self._said = tempfile.TemporaryFile()  # a pipe that nobody reads could fill up
        self._process = open_program("chat", "--json", *words_of(settings), *flags, stdin=subprocess.PIPE, stderr=self._said, start_new_session=True)
        self._end = weakref.finalize(self, _end, self._process, self._said)  # with close(), with the last reference, or with Python
        self.context: int = self._receive()["context"]  # tokens that a conversation may have

    def _receive(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            code = self._process.wait()
            self._said.seek(0)
            raise LockstepError(self._said.read().decode("utf-8", "replace").strip() or f"lockstep chat ended with {code}.", code)
        event: dict[str, Any] = json.loads(line)
        return event

    def stream(self, said: str) -> Iterator[str]:
        """The answer piece by piece. One that is left half way is read to its end before the next."""
        if not self._end.alive:
            raise LockstepError("this conversation is closed. Begin another: lockstep.Chat(...).", 2)
        self.messages.append({"role": "user", "content": said})
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"messages": self.messages}) + "\n")
        self._process.stdin.flush()
        text, finish = "", None
        try:
            while finish is None:
                event = self._receive()
                if "error" in event:
                    self.messages.pop()
                    finish = "error"
                    raise LockstepError(event["error"], 2)
                finish = event.get("finish")
                text += event.get("text", "")
                if "text" in event:
                    yield event["text"]
        finally:
            while finish is None:
                event = self._receive()
                finish = event.get("finish") or ("error" if "error" in event else None)
                text += event.get("text", "")
            if finish != "error":
                self.messages.append({"role": "assistant", "content": text})
                self.finish = finish

    def say(self, said: str) -> Completion:
        text = "".join(self.stream(said))
        return Completion(text, self.finish)

    def reset(self) -> None:
        """Forgets what was said, but for the system message."""
        self.messages = [message for message in self.messages if message["role"] == "system"]

    def close(self) -> None:
        self._end()

    def __enter__(self) -> Chat:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _end(process: subprocess.Popen[str], said: IO[bytes]) -> None:
    """The end of its input is the end of a conversation; one that still writes is not waited for."""
    for pipe in (process.stdin, process.stdout):
        try:
            if pipe is not None:
                pipe.close()
        except OSError:
            pass  # it has ended by itself, with words that it had not read
    try:
        process.wait(timeout=5)
    except subprocess.TimeoutExpired:
        process.terminate()
        process.wait()
    said.close()
