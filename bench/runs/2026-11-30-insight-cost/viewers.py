"""CPU-seconds of an edge with and without ten viewers of /events, in pairs."""
import http.client, os, random, socket, subprocess, sys, threading, time
E, PAIRS, SECONDS, VIEWERS = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), 10
F = "/tmp/viewers"; P = 26100
os.makedirs(F, exist_ok=True)
open(F + "/edge.toml", "w").write(f'''
[[listener]]
address = "127.0.0.1:{P}"
[admin]
address = "127.0.0.1:{P+2}"
event_streams_max = 16
[origin]
url = "http://127.0.0.1:{P+1}"
[hot]
capacity = "64MiB"
[overload]
lag_max = "0ms"
''')
null = subprocess.DEVNULL
origin = subprocess.Popen([E, "origin", "--listen", f"127.0.0.1:{P+1}", "--etag"], stdout=null, stderr=null)
edge = subprocess.Popen([E, "serve", "--config", F + "/edge.toml"], stdout=null, stderr=open(F + "/log", "w"))
try:
    for _ in range(300):
        try: socket.create_connection(("127.0.0.1", P)).close(); break
        except OSError: time.sleep(.1)
    stop = False
    sent = 0
    def load():  # 200 requests per second for 500 URLs
        global sent
        c = http.client.HTTPConnection("127.0.0.1", P); r = random.Random(1)
        due = time.monotonic()
        while not stop:
            c.request("GET", f"/o/{int(500*r.random()**3)}?size=2000", headers={"Host": f"site{sent%20}.example"}); c.getresponse().read(); sent += 1
            due += .005; time.sleep(max(0, due - time.monotonic()))
    threading.Thread(target=load, daemon=True).start()
    def cpu():  # of the thread of the admin server, which alone serves /events
        tasks = [f"/proc/{edge.pid}/task/{t}" for t in os.listdir(f"/proc/{edge.pid}/task")]
        tasks = [t for t in tasks if open(t + "/comm").read().startswith("edgeward-admin")]
        return sum(int(open(t + "/schedstat").read().split()[0]) for t in tasks) / 1e9
    time.sleep(10)
    diffs = []
    for pair in range(PAIRS):
        spent = {}
        for n in ([0, VIEWERS] if pair % 2 == 0 else [VIEWERS, 0]):
            views, got = [], [0] * max(n, 1)
            for _ in range(n):
                s = socket.create_connection(("127.0.0.1", P + 2)); s.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n"); views.append(s)
            def read(at):
                try:
                    while d := views[at].recv(1 << 16): got[at] += len(d)
                except OSError: pass
            for at in range(n): threading.Thread(target=read, args=(at,), daemon=True).start()
            time.sleep(2)
            a, t, s0 = cpu(), time.monotonic(), sent
            time.sleep(SECONDS)
            b, u = cpu(), time.monotonic()
            spent[n] = (b - a) / (u - t)
            print(pair, n, f"{100*spent[n]:.3f} % of a core, {(sent-s0)/(u-t):.0f} req/s, {sum(got)/1e3:.0f} kB", flush=True)
            for s in views: s.shutdown(2); s.close()
            time.sleep(1)
        diffs.append(100 * (spent[VIEWERS] - spent[0]))
    print("difference in % of a core:", " ".join(f"{d:.3f}" for d in diffs), f"mean {sum(diffs)/len(diffs):.3f}")
    stop = True
finally:
    edge.terminate(); origin.terminate()
