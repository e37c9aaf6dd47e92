#!/bin/sh
# page.sh BUILD: runs the tool's benchmarks, validates the JSON against docs/*.schema.json, and opens the page of it.
set -u
cd "$(dirname "$0")/../.." || exit 1
tool=$1/src/cli/tessera
. tests/source/tap.sh

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# The distribution's, rather than another Python's.
validator=$(command -v /usr/bin/jsonschema || command -v jsonschema)
browser=$(command -v chromium || command -v chromium-browser || true)

measures() {
    "$tool" bench --time 0.002 -o "$folder/run.json" >"$folder/run.txt"
}
# What is stored here is not for the programs of whoever runs the tests. A product that some kernel is measured for, and one that
# is left out.
tunes() {
    env XDG_CACHE_HOME="$folder/cache" "$tool" bench --tune --device 0 --time 0.02 --dtype f32 --shape 40x64x48 \
        --shape 2048x2048x2048 -o "$folder/tuning.json" >"$folder/tuning.txt" && grep -q '"left_out": \[$' "$folder/tuning.json"
}
valid() { # NAME SCHEMA
    "$validator" -i "$folder/$1.json" "docs/$2.schema.json"
}
# With something that failed: the exit status is 3.
compares() {
    sed 's/"failures": \[\]/"failures": [{"benchmark": "copy", "device": null, "text": "wrong"}]/' "$folder/run.json" \
        >"$folder/failed.json"
    "$tool" bench compare "$folder/run.json" "$folder/failed.json" --of-ceiling --json >"$folder/compare.json"
    [ $? -eq 3 ] && valid compare compare && grep -q '"unit": "fraction"' "$folder/compare.json"
}
# A schema that accepts anything would accept this, too.
invalid() { # NAME SCHEMA SED-COMMAND
    sed "$3" "$folder/$1.json" >"$folder/spoilt.json"
    ! cmp -s "$folder/$1.json" "$folder/spoilt.json" && ! valid spoilt "$2"
}
# A name that would do something, were it not escaped.
makes_hostile() {
    sed 's|"name": "|&<script>document.title=1</script><img src=x onerror=alert(1)>|' "$folder/run.json" >"$folder/hostile.json"
    grep -q '<script>' "$folder/hostile.json"
}
makes_page() { # NAME JSON…
    name=$1
    shift
    "$tool" bench report "$@" -o "$folder/$name.html"
}
well_formed() {
    xmllint --noout "$folder/$1.html"
}
open_page() { # OPTION… NAME: in a home of its own, without a network
    timeout 120 env HOME="$folder" "$browser" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage \
        --proxy-server=127.0.0.1:9 --user-data-dir="$folder/profile" "$@" 2>"$folder/browser.log" ||
        { cat "$folder/browser.log"; false; }
}
shows_everything() { # what the browser made of the page
    open_page --dump-dom "file://$folder/page.html" >"$folder/dom.html" || return 1
    for heading in 'At a glance' matmul launch copy elementwise embedding optimizer random rng sample Runs; do
        grep -q "<h2>$heading</h2>" "$folder/dom.html" || { echo "no heading $heading"; return 1; }
    done
    [ "$(grep -o '<svg class="bars"' "$folder/dom.html" | wc -l)" -ge 8 ] && grep -q '<svg class="roofline"' "$folder/dom.html"
}
runs_no_script() {
    open_page --dump-dom "file://$folder/hostile.html" >"$folder/dom.html" &&
        grep -q '<title>tessera bench</title>' "$folder/dom.html" && ! grep -qE '<(script|img)' "$folder/dom.html"
}
draws() { # FILE WIDTH OPTION…: something is there, as empty pages compress to little
    picture=$folder/$1.png
    width=$2
    shift 2
    open_page "$@" --hide-scrollbars --window-size="$width,3000" --screenshot="$picture" "file://$folder/page.html" &&
        [ "$(wc -c <"$picture")" -gt 60000 ]
}
differ() {
    ! cmp -s "$folder/light.png" "$folder/dark.png"
}

point "a complete run" measures
point "its JSON fits the schema" valid run bench
point "the schema refuses a missing member" invalid run bench 's/"median"/"mean"/'
point "the schema refuses a wrong type" invalid run bench 's/"is_ceiling": false/"is_ceiling": 0/'
point "the schema refuses another version" invalid run bench 's/"schema_version": 2/"schema_version": 3/'
point "two runs are compared in JSON that fits its schema" compares
point "which refuses a missing member" invalid compare compare 's/"slowdown"/"speedup"/'
point "and another verdict" invalid compare compare 's/"verdict": "[a-z_]*"/"verdict": "nice"/'
point "a tuning" tunes
point "its JSON fits the schema of tunings" valid tuning tuning
point "that one refuses a missing member" invalid tuning tuning 's/"winner"/"loser"/'
point "it refuses a wrong type" invalid tuning tuning 's/"with_bias": false/"with_bias": 0/;s/"with_bias": true/"with_bias": 1/'
point "it refuses another version" invalid tuning tuning 's/"schema_version": 1/"schema_version": 2/'
point "it refuses another state" invalid tuning tuning 's/"state": "[a-z]*"/"state": "gone"/'
point "it refuses a run" invalid run tuning 's/tessera.bench/tessera.tuning/;s/"schema_version": 2/"schema_version": 1/'
point "the page of it" makes_page page "$folder/run.json"
point "is well-formed XML" well_formed page
point "a run with hostile names" makes_hostile
point "the page of both" makes_page hostile "$folder/hostile.json" "$folder/run.json"
point "is well-formed XML, too" well_formed hostile
if [ -n "$browser" ]; then
    point "the browser shows every part" shows_everything
    point "the browser runs nothing of a hostile page" runs_no_script
    point "it draws the page in light colours" draws light 1100 --blink-settings=preferredColorScheme=1
    point "it draws the page in dark colours" draws dark 1100 --blink-settings=preferredColorScheme=0
    point "which are others" differ
    point "it draws the page on a narrow screen" draws narrow 390
else
    skip "the page in a browser" "no package of this distribution has chromium"
fi
plan
