"""A conversation with a model that stays loaded, as text comes."""
import json
import subprocess

from .errors import LockstepError
from .program import environment, find_program, words_of
from .text import Completion


class Chat:
    """with lockstep.Chat(model=DIR) as chat: chat.say("What is a tide?")

    Takes what lockstep.generate takes of a model and of how words are chosen. `messages` is what was said so far; it may be changed.
    """

    def __init__(self, *, system: str | None = None, max_new_tokens=None, stop=(), load_in_4bit=False, load_in_8bit=False, **settings):
        if max_new_tokens is not None:
            settings.setdefault("max_tokens", max_new_tokens)
        flags = [flag for flag, on in (("--load-in-4bit", load_in_4bit), ("--load-in-8bit", load_in_8bit)) if on]
        for text in [stop] if isinstance(stop, str) else stop:
            flags += ["--stop", text]
        self.messages = [{"role": "system", "content": system}] if system else []
        self._process = subprocess.Popen([str(find_program()), "chat", "--json", *words_of(settings), *flags], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                         stderr=subprocess.PIPE, text=True, encoding="utf-8", env=environment(), start_new_session=True)
        self.context = self._receive()["context"]  # tokens that a conversation may have

    def _receive(self) -> dict:
        line = self._process.stdout.readline()
        if not line:
            code = self._process.wait()
            raise LockstepError(self._process.stderr.read().strip() or f"lockstep chat ended with {code}.", code)
        return json.loads(line)

    def stream(self, said: str):
        """The answer piece by piece. One that is left half way is read to its end before the next."""
        self.messages.append({"role": "user", "content": said})
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
        if self._process.poll() is None:
            self._process.stdin.close()
            self._process.wait()
        for stream in (self._process.stdout, self._process.stderr):
            stream.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
