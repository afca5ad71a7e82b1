"""Who should not get in does not, and nothing that a client sends or withholds stops the page or touches a run."""
import json
import random
import socket
import threading
import time

import pytest

from serving import TINY, Served

PATHS = ["/api/state", "/api/runs", "/api/runs/keeps/series", "/api/settings", "/", "/api/stream", "/assets/x.js"]


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A page with a run that trains while it is attacked."""
    page = Served(tmp_path_factory.mktemp("safe"))
    page.begin("keeps", trainer__max_steps="1000000", trainer__log_interval="5")
    page.wait_for("keeps", lambda run: run["step"] >= 2)
    yield page
    page.close()


def still_serves(served):
    begun = time.monotonic()
    assert served.request("GET", "/")[0] == 200
    run = served.json("GET", "/api/runs/keeps")
    assert run["state"] == "running", run
    return time.monotonic() - begun


def status_of(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.1 ") else 0


@pytest.mark.parametrize("host, status", [
    ("127.0.0.1:{port}", 200), ("localhost:{port}", 200), ("localhost", 200), ("[::1]:{port}", 200), ("LOCALHOST:9", 200),
    ("evil.example", 421), ("evil.example:{port}", 421), ("127.0.0.1.evil.example", 421), ("localhost.evil.example", 421), ("", 421), ("10.0.0.7", 421),
    ("127.evil.example", 421), ("localhost:{port}:1", 421), ("[::1", 421), ("localhost:x", 421),
])
def test_only_its_own_name_is_served(served, host, status):
    for path in ("/", "/api/state"):
        answer = served.raw(f"GET {path} HTTP/1.1\r\nHost: {host.format(port=served.port)}\r\n\r\n".encode())
        assert status_of(answer) == status, (path, answer[:200])


@pytest.mark.parametrize("headers, status", [
    ({"Origin": "http://127.0.0.1:{port}"}, 202),
    ({"Origin": "http://evil.example"}, 403), ({"Origin": "null"}, 403), ({"Origin": "http://127.0.0.1:1"}, 403), ({"Sec-Fetch-Site": "cross-site"}, 403),
    ({"Sec-Fetch-Site": "same-site"}, 403), ({"Content-Type": "text/plain"}, 415), ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
])
def test_other_sites_cannot_act(served, headers, status):
    headers = {name: value.format(port=served.port) for name, value in headers.items()}
    assert served.request("POST", "/api/runs/keeps/ask", {"wish": "save"}, headers)[0] in (status, 409 if status == 202 else status)


def test_other_sites_cannot_read(served):
    for headers in ({"Sec-Fetch-Site": "cross-site"}, {"Origin": "http://evil.example"}):
        assert served.request("GET", "/api/state", headers=headers)[0] == 403
    status, _, headers = served.request("GET", "/api/state")
    assert status == 200 and "Access-Control-Allow-Origin" not in headers and headers["Cache-Control"] == "no-store"
    assert "script-src 'self'" in headers["Content-Security-Policy"] and "unsafe" not in headers["Content-Security-Policy"]
    assert headers["X-Content-Type-Options"] == "nosniff" and headers["X-Frame-Options"] == "DENY"


CLIMBS = ["../../etc/passwd", "%2e%2e/%2e%2e/etc/passwd", "..%2f..%2fetc%2fpasswd", "....//....//etc/passwd", "%2e%2e%5c", "..%00", "%252e%252e%252f", "/etc/passwd",
          "keeps/../../x", ".ui", ".", "..", "-x", "a b", "%c0%ae%c0%ae/"]


@pytest.mark.parametrize("climb", CLIMBS)
def test_no_path_leads_out(served, climb):
    for path in (f"/{climb}", f"/assets/{climb}", f"/api/runs/{climb}", f"/api/runs/{climb}/series", f"/api/runs/{climb}/log?rank=0", f"/api/stream?run={climb}"):
        answer = served.raw(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        assert b"root:" not in answer and (status_of(answer) in (400, 404) or b"<!doctype html>" in answer), (path, answer[:300])
        assert not (path.startswith("/api/") and status_of(answer) == 200), path
    assert served.request("DELETE", "/api/runs/" + climb.replace(" ", "%20"))[0] in (400, 404, 405)
    for key in ("data.path", "model.path", "data.tokenizer", "trainer.checkpoint_dir", "checkpoint.resume", "data.cache_dir", "data.validation_path", "lora.adapters"):
        judged = served.json("POST", "/api/plan", {"settings": {**TINY, key: "/etc/../etc/passwd" if "/" not in climb else f"/{climb}"}})
        assert any("lies outside" in error["text"] for error in judged["errors"]), (key, judged)


def test_links_do_not_lead_out(served):
    (served.output / "linked").symlink_to("/etc")
    (served.folder / "way").symlink_to("/etc")
    assert served.request("GET", "/api/runs/linked")[0] == 400
    judged = served.json("POST", "/api/plan", {"settings": {**TINY, "data.path": str(served.folder / "way" / "passwd")}})
    assert "lies outside" in judged["errors"][0]["text"]
    (served.output / "linked").unlink()


def test_settings_are_never_a_shell(served):
    sign = served.folder / "sign"
    for value in (f"$(touch {sign})", f"`touch {sign}`", f"x; touch {sign}", f"x\ntouch {sign}", f"| touch {sign}", f"' ; touch {sign} '"):
        served.request("POST", "/api/runs", {"settings": {**TINY, "name": "", "model.name": value, "trainer.max_steps": "1"}})
        served.request("POST", "/api/runs", {"settings": {**TINY, "name": value, "trainer.max_steps": "1"}})
        served.request("POST", "/api/plan", {"settings": {**TINY, "monitor.sample_prompt": value}})
    time.sleep(0.5)
    assert not sign.exists()


def test_the_token_is_needed(tmp_path):
    token = "a-long-token-for-tests"
    served = Served(tmp_path, env={"LOCKSTEP_UI_TOKEN": token})
    try:
        for path in ("/", "/api/state", "/api/stream", "/icon.svg"):
            assert served.request("GET", path)[0] == 401
        assert served.request("POST", "/api/runs", {"settings": TINY})[0] == 401
        for wrong in ("x", token[:-1], token + "x", token.upper()):
            assert served.request("GET", f"/?token={wrong}")[0] == 401
            assert served.request("GET", "/api/state", headers={"Authorization": f"Bearer {wrong}"})[0] == 401
            assert served.request("GET", "/api/state", headers={"Cookie": f"lockstep_token={wrong}"})[0] == 401
        assert served.request("GET", "/api/state", headers={"Authorization": f"Bearer {token}"})[0] == 200
        status, _, headers = served.request("GET", f"/?token={token}")
        assert status == 303 and headers["Location"] == "/" and "HttpOnly" in headers["Set-Cookie"] and "SameSite=Strict" in headers["Set-Cookie"]
        assert served.request("GET", "/api/state", headers={"Cookie": headers["Set-Cookie"].split(";")[0]})[0] == 200
    finally:
        served.close()


def fuzzed(rng: random.Random) -> bytes:
    """One request that nobody would send, from a plain one."""
    body = json.dumps({"settings": {**TINY, "name": "fuzz"}, "wish": "save"}).encode()
    method = rng.choice(["GET", "POST", "DELETE", "PUT", "HEAD", "OPTIONS", "get", "", "G\tET", "TRACE", "X" * rng.randrange(1, 400)])
    path = rng.choice(PATHS + ["/api/plan", "//", "/%", "/%zz", "/?%", "*", "http://x/", "/api/" + "a/" * rng.randrange(60), "/" + "%41" * rng.randrange(3000), "/\x00", "/\u00e9"])
    version = rng.choice(["HTTP/1.1"] * 6 + ["HTTP/1.0", "HTTP/2.0", "HTTP/9", "", "http/1.1"])
    headers = ["Host: localhost"]
    for _ in range(rng.randrange(5)):
        headers.append(rng.choice([
            "Content-Length: -1", "Content-Length: 99999999999999999999", "Content-Length: 5", "Content-Length: 0x10", "Content-Length: 5000000", "Transfer-Encoding: chunked",
            "Content-Type: application/json", "Connection: close", "Expect: 100-continue", "X: " + "y" * rng.randrange(20000), ": empty", "No colon", " folded", "Host: localhost",
            "Cookie: " + ";" * rng.randrange(500), "Accept-Encoding: gzip", "Range: bytes=0-1", "Upgrade: websocket", "A\x01B: c", "Origin: http://localhost"]))
    if rng.random() < 0.5:
        headers += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
        body = rng.choice([body, body[:rng.randrange(len(body))], bytes(rng.randrange(256) for _ in range(len(body))), b"[" * len(body), b"null", b'{"settings":' + b'{"a":' * 200])
    raw = f"{method} {path} {version}\r\n".encode() + "\r\n".join(headers).encode() + b"\r\n\r\n" + body
    if rng.random() < 0.4:
        cut = bytearray(raw)
        for _ in range(rng.randrange(1, 8)):
            cut[rng.randrange(len(cut))] = rng.randrange(256)
        raw = bytes(cut)
    return raw[: rng.randrange(len(raw))] if rng.random() < 0.15 else raw


def test_odd_requests_are_refused(served):
    """1,000 of them, by their number: what a failure prints runs it again."""
    codes: dict[int, int] = {}
    for number in range(1000):
        raw = fuzzed(random.Random(number))
        answer = served.raw(raw, timeout=3)
        code = status_of(answer)
        codes[code] = codes.get(code, 0) + 1
        assert code == 0 or 200 <= code < 506 and code != 500, (number, raw[:300], answer[:300])
        assert served.process.poll() is None, (number, raw[:300])
    print(f"answers by status: {dict(sorted(codes.items()))}")
    assert sum(count for code, count in codes.items() if code >= 400) > 300
    still_serves(served)


ODD = [[], "x", 7, None, {"settings": []}, {"settings": {"trainer.max_steps": {"a": 1}}}, {"settings": "x"}, {"wish": 5, "settings": 5, "messages": 5, "text": 5, "quick": 5, "gpus": "x", "model": 5, "samples": {}},
       {"settings": {"x" * 5000: "y"}}, {"messages": {}, "wish": "", "text": "\x00", "quick": "", "model": "/etc", "memory": 5, "settings": {"data.path": "/etc/passwd"}}]


def test_odd_bodies_are_refused(served):
    """Every way to act, with bodies of the wrong kind."""
    for path in ("plan", "runs", "runs/keeps/resume", "runs/keeps/ask", "runs/no/ask", "import", "data", "placements", "presets/..", "chat", "chat/none/ask", "check"):
        for body in ODD:
            if path == "check" and isinstance(body, dict) and "quick" not in body:
                continue  # nothing odd for it
            status, text, _ = served.request("POST", f"/api/{path}", json.dumps(body))
            refused = 400 <= status < 500 or status == 422 or b'"errors":[{' in text
            assert refused, (path, body, status, text[:300])
    still_serves(served)


@pytest.mark.parametrize("head", [
    b"POST /api/plan HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 50000000\r\n\r\n", b"GET /" + b"a" * 60000 + b" HTTP/1.1\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"y" * 100000 + b"\r\n\r\n", b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X%d: y\r\n" * 200 + b"\r\n",
], ids=["body", "address", "header", "headers"])
def test_large_ones_are_refused(served, head):
    assert status_of(served.raw(head)) in (400, 413, 414, 431)
    still_serves(served)


def test_slow_clients_wait_alone(served):
    """600 connections that send a byte now and then, or take nothing of what they asked for."""
    clients = []
    for number in range(600):
        client = socket.create_connection(("127.0.0.1", served.port), timeout=5)
        client.setblocking(False)
        try:
            client.send(b"GET /api/settings HTTP/1.1\r\nHost: localhost\r\n\r\n" * 20 if number % 3 == 0 else b"GET / HT" if number % 3 == 1 else b"")
        except OSError:
            pass
        clients.append(client)
    slowest = max(still_serves(served) for _ in range(4))
    print(f"with 600 slow clients the page and a run took {slowest:.3f} s at most")
    for client in clients:
        client.close()
    still_serves(served)


def test_200_streams_hear_a_run(served):
    """All of them hear its steps, and a page is still served at once."""
    heard = [0] * 200
    ends = threading.Event()

    def listen(number):
        with socket.create_connection(("127.0.0.1", served.port), timeout=30) as client:
            client.sendall(b"GET /api/stream?run=keeps HTTP/1.1\r\nHost: localhost\r\n\r\n")
            client.settimeout(1)
            while not ends.is_set():
                try:
                    heard[number] += client.recv(65536).count(b"event: lines")
                except socket.timeout:
                    pass

    threads = [threading.Thread(target=listen, args=(number,)) for number in range(200)]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + 30
    while min(heard) < 2 and time.monotonic() < deadline:
        time.sleep(0.1)
    waited = still_serves(served)
    ends.set()
    for thread in threads:
        thread.join()
    assert min(heard) >= 2
    print(f"200 streams; the page and a run took {waited:.3f} s beside them")
    still_serves(served)
