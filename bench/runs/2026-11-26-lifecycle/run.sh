#!/bin/bash
# 1,000 sites; 180 reloads and 20 upgrades under wrk, h2load (new connections and kept ones).
set -u
B=${EDGEWARD:-target/debug/edgeward}
D=$(mktemp -d)
B=$(realpath $B); cd $D; echo a-token-of-the-run-0123 > token
conf() { # $1: lifetime that changes
cat > edge.toml <<T
[[listener]]
address = "127.0.0.1:0"
[origin]
url = "http://$O"
[hot]
capacity = "64MiB"
[admin]
address = "127.0.0.1:0"
[purge]
token_file = "$D/token"
[server]
workers = 2
pid_file = "$D/pid"
drain_timeout = "5s"
[limits]
headers_max = $((60 + $1 % 30))
[[site]]
hosts = "*"
T
for i in $(seq 1 999); do printf '[[site]]\nhosts = ["s%d.example"]\ndefault_ttl = "%dmin"\n' $i $((1 + ($1 + i) % 50)) >> edge.toml; done
}
$B origin --listen 127.0.0.1:0 --json > origin.out 2>/dev/null & OP=$!
sleep 1; O=$(grep -oE '127.0.0.1:[0-9]+' origin.out | head -1); conf 0
$B check-config edge.toml > check.txt 2>&1 || { tail -5 check.txt; kill $OP; exit 1; }
$B serve --config edge.toml --json > edge.out 2> edge.err &
for i in $(seq 50); do [ -s edge.out ] && break; sleep 0.1; done
L=$(grep -oE '"listening":\["http://[^"]*' edge.out | grep -oE 'http://.*'); A=$(grep -oE '"admin":"http://[^"]*' edge.out | grep -oE '127.*')
curl -s -o /dev/null $L/o/1?size=1000
wrk -t1 -c16 -d40 $L/o/1?size=1000 > wrk.txt 2>&1 & W=$!
h2load -c4 -m8 -D40 $L/o/1?size=1000 > h2load.txt 2>&1 & H=$!
t0=$(date +%s.%N); ok=0; bad=0; up=0
for n in $(seq 1 200); do
  if [ $((n % 10)) = 0 ]; then $B upgrade --admin $A --token-file token >/dev/null 2>>err.txt && up=$((up+1)) || bad=$((bad+1))
  else conf $n; $B reload --admin $A --token-file token >/dev/null 2>>err.txt && ok=$((ok+1)) || bad=$((bad+1)); fi
done
t1=$(date +%s.%N)
echo "reloads $ok upgrades $up failed $bad seconds $(echo "$t1 - $t0" | bc)"
wait $W $H; cat wrk.txt; cat h2load.txt | tail -12
kill $(cat pid); kill $OP; sleep 1; cat err.txt 2>/dev/null | head
