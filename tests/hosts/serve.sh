#!/bin/sh
# serve.sh ROOT TOOL: `tessera serve` with two ranks on one host (a network namespace) and one on another one. Streams go on, with the same text,
# in rounds in which ranks are killed or stopped and others join, and when the link between the hosts breaks. TEST_HOSTS_ROUNDS is the number of
# rounds (default: 1), TEST_HOSTS_STREAMS that of the streams in each (4), and TEST_HOSTS_SEED chooses ranks and times. Skipped if namespaces
# cannot be made.
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
arguments="serve $model --port 8080 --name stories --format vicuna --parallel 16 --lost-after ${TEST_HOSTS_LOST_AFTER-4} --timeout 60"
streams=${TEST_HOSTS_STREAMS-4}
seed=${TEST_HOSTS_SEED-$(date +%s)}
ask() { # PATH [BODY]: prints what the server answers
    on "$a" curl -sN --max-time 300 "http://127.0.0.1:8080$1" ${2:+-d "$2"}
}
# text KIND: prints the text of a stream, one of 4, and whether it has ended as it should.
text() {
    prompt=$(echo "Once upon a time|The dog|One day|Lily" | cut -d '|' -f $(($1 % 4 + 1)))
    ask /v1/completions "{\"prompt\": \"$prompt\", \"temperature\": $(($1 % 2)), \"seed\": 5, \"max_tokens\": 80, \"stream\": true}" |
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
    for kind in 0 1 2 3; do
        text $kind >"$folder/wanted.$kind"
        grep -q 'length.*DONE' "$folder/wanted.$kind" || return
    done
    has_ranks 3
}
# streams_survive COMMAND…: starts streams, runs the command, and waits for their ends.
streams_survive() {
    started=
    for i in $(seq "$streams"); do
        text "$i" >"$folder/stream.$i" &
        started="$started $!"
    done
    "$@" || return
    # shellcheck disable=SC2086 # several numbers
    wait $started
    for i in $(seq "$streams"); do
        cmp "$folder/wanted.$((i % 4))" "$folder/stream.$i" || {
            show
            return 1
        }
    done
    text 0 | cmp "$folder/wanted.0" -
}

# Rounds: `members` has the process and the host of each rank but the first, PID:HOST.
# choose BELOW: sets `chosen` to a number. pause MOST: sleeps for up to so many milliseconds.
choose() {
    seed=$(((seed * 1103515245 + 12345) % 2147483648))
    chosen=$((seed / 65536 % $1))
}
pause() {
    choose "$1"
    sleep "$(printf %d.%03d $((chosen / 1000)) $((chosen % 1000)))"
}
# lose SIGNAL: a random member gets the signal, and is none any more. Sets `lost` to it.
lose() {
    # shellcheck disable=SC2086 # several words
    choose "$(echo $members | wc -w)"
    # shellcheck disable=SC2086
    lost=$(echo $members | cut -d ' ' -f $((chosen + 1)))
    members=$(echo " $members " | sed "s/ $lost / /")
    absent="$absent $lost"
    echo "round $round: signal $1 to the rank on host ${lost#*:}"
    kill "-$1" "${lost%:*}"
}
# Starts a process in the place of each rank that was lost, which it ends, if it was only stopped.
join() {
    for one in $absent; do
        kill -KILL "${one%:*}" 2>/dev/null
        number=${one#*:}
        # shellcheck disable=SC2086 # several words
        TESSERA_BOOT="join" ip netns exec "$(host "$number")" "$summing" $arguments >"$folder/out.j" 2>"$folder/err.j" &
        members="$members $!:$number"
    done
    absent=
}
# Loses a rank; in each fourth round it is stopped, and in each third one another rank is lost while the others divide the model again.
lose_some() {
    pause 800
    lose "$([ $((round % 4)) = 2 ] && echo STOP || echo KILL)"
    [ $((round % 3)) != 0 ] || { pause 600 && lose KILL; }
}
# In each fifth round, a rank is lost while the model is loaded with the ones that join.
one_round() {
    streams_survive lose_some || return
    join
    [ $((round % 5)) != 0 ] || { pause 2000 && lose KILL && pause 500 && join; }
    has_ranks 3 && text 0 | cmp "$folder/wanted.0" -
}
break_link() {
    ip -n "$a" route add blackhole 10.98.0.2/32 && ip -n "$b" route add blackhole 10.98.0.1/32
}
link_breaks() {
    streams_survive break_link && has_ranks 2
}
# shellcheck disable=SC2086 # several words
start_all $arguments
first=$(echo "$pids" | cut -d ' ' -f 2)
members="$(echo "$pids" | cut -d ' ' -f 3):1 $(echo "$pids" | cut -d ' ' -f 4):2"
absent=
point "ranks on two hosts serve" serves
echo "# TEST_HOSTS_SEED=$seed"
for round in $(seq "${TEST_HOSTS_ROUNDS-1}"); do
    one_round >"$folder/round" 2>&1
    point "streams go on without lost ranks, and others join: round $round" sh -c "cat '$folder/round'; exit $?"
done
point "streams go on without the other host" link_breaks
kill "$first"
wait "$first"
point "a signal ends the server" [ "$?" = 0 ]
for one in $members $absent; do
    kill -9 "${one%:*}" 2>/dev/null
done
plan
