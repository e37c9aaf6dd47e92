#!/bin/sh
# serve.sh ROOT TOOL: `tessera serve` with two ranks on one host (a network namespace) and one on another one. Streams go on, with the same text,
# when a rank of the other host is killed, when one joins there, and when the link between the hosts breaks. Skipped if namespaces cannot be made.
set -u
summing=$2
cd "$1" || exit 1
. tests/source/tap.sh
. tests/hosts/hosts.sh
make_hosts "serve on two hosts" "$@"
command -v curl >/dev/null || {
    skip "serve on two hosts" "there is no curl"
    plan
    exit
}
placement="1 1 2"
. tests/hosts/ranks.sh
model=tests/data/model/stories260K-f16.gguf
arguments="serve $model --port 8080 --name stories --format vicuna --parallel 4 --lost-after 4 --timeout 60"
ask() { # PATH [BODY]: prints what the server answers
    on "$a" curl -sN --max-time 60 "http://127.0.0.1:8080$1" ${2:+-d "$2"}
}
# text COUNT: prints the text of a stream of so many tokens, and whether it has ended as it should.
text() {
    ask /v1/completions "{\"prompt\": \"Once upon a time\", \"temperature\": 0, \"max_tokens\": $1, \"stream\": true}" |
        sed -n 's/^data: //; s/.*"text":"\([^"]*\)".*"finish_reason":\([^}]*\).*/\1|\2/p; /DONE/p' | sed 's/|null$//' | tr -d '\n'
}
has_ranks() { # COUNT: waits for the state
    for _ in $(seq 600); do
        ask /health | grep -q "\"ranks\":$1," && return
        sleep 0.1
    done
    ask /health
    show
    false
}
serves() {
    wait_for serves "$folder/out.0" || {
        show
        return 1
    }
    text 200 >"$folder/wanted"
    grep -q 'length.*DONE' "$folder/wanted" && has_ranks 3
}
# streams_survive COMMAND…: starts streams, runs the command, and waits for their ends.
streams_survive() {
    streams=
    for i in 1 2 3 4; do
        text 200 >"$folder/stream.$i" &
        streams="$streams $!"
    done
    sleep 0.3
    "$@" || return
    # shellcheck disable=SC2086 # several numbers
    wait $streams
    for i in 1 2 3 4; do
        cmp "$folder/wanted" "$folder/stream.$i" || {
            show
            return 1
        }
    done
    text 200 | cmp "$folder/wanted" -
}
killed() {
    streams_survive kill_rank 2 && has_ranks 2 && ask /health | grep degraded
}
joins() {
    has_ranks 3 && text 200 | cmp "$folder/wanted" -
}
break_link() {
    ip -n "$a" route add blackhole 10.98.0.2/32 && ip -n "$b" route add blackhole 10.98.0.1/32
}
link_breaks() {
    streams_survive break_link && has_ranks 2
}
# shellcheck disable=SC2086 # several words
start_all $arguments
point "ranks on two hosts serve" serves
point "streams go on without a rank of the other host" killed
# shellcheck disable=SC2086 # several words
TESSERA_BOOT="join" ip netns exec "$b" "$summing" $arguments >"$folder/out.3" 2>"$folder/err.3" &
pids="$pids $!"
point "a rank joins on the other host" joins
point "streams go on without the other host" link_breaks
first=$(echo "$pids" | cut -d ' ' -f 2)
kill "$first"
wait "$first"
point "a signal ends the server" [ "$?" = 0 ]
for pid in $pids; do
    kill -9 "$pid" 2>/dev/null
done
plan
