#!/bin/sh
# page.sh BUILD: validates the JSON of the tool's benchmarks against docs/*.schema.json, and opens the report page in a browser.
# The run to report is the file that the test cli-bench-complete has written in this build.
set -u
cd "$(dirname "$0")/../.." || exit 1
build=$1
tool=$build/src/cli/tessera
. tests/source/tap.sh

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# Prefers the distribution's validator to that of another Python.
validator=$(command -v /usr/bin/jsonschema || command -v jsonschema)
browser=$(command -v chromium || command -v chromium-browser || true)

finds_run() {
    cp "$build/tests/cli/complete.json" "$folder/run.json"
}
# Tunes a product whose kernels are measured, and one that is too large and left out. The result is stored in a
# temporary folder, so that it does not affect other programs.
tunes() {
    env XDG_CACHE_HOME="$folder/cache" "$tool" bench --tune --device 0 --time 0.02 --dtype f32 --shape 40x64x48 \
        --shape 2048x2048x2048 -o "$folder/tuning.json" >"$folder/tuning.txt" && grep -q '"left_out": \[$' "$folder/tuning.json"
}
valid() { # NAME SCHEMA
    "$validator" -i "$folder/$1.json" "docs/$2.schema.json"
}
# Succeeds if `tessera bench compare` exits with 3, because something failed in the new run, and its JSON fits the schema.
compares() {
    sed 's/"failures": \[\]/"failures": [{"benchmark": "copy", "device": null, "text": "wrong"}]/' "$folder/run.json" \
        >"$folder/failed.json"
    "$tool" bench compare "$folder/run.json" "$folder/failed.json" --of-ceiling --json >"$folder/compare.json"
    [ $? -eq 3 ] && valid compare compare && grep -q '"unit": "fraction"' "$folder/compare.json"
}
# Checks that the schema refuses a document after a change.
invalid() { # NAME SCHEMA SED-COMMAND
    sed "$3" "$folder/$1.json" >"$folder/spoilt.json"
    ! cmp -s "$folder/$1.json" "$folder/spoilt.json" && ! valid spoilt "$2"
}
# Checks the published files as `bench --submit` does, and draws their page.
published() {
    "$tool" bench report --check docs/results/*.json -o "$folder/results.html" && well_formed results
}
# Makes a run with names that contain HTML, which must be escaped.
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
open_page() { # OPTION… ADDRESS: opens it with a separate home and without a network
    timeout 120 env HOME="$folder" "$browser" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage \
        --proxy-server=127.0.0.1:9 --user-data-dir="$folder/profile" "$@" 2>"$folder/browser.log" ||
        { cat "$folder/browser.log"; false; }
}
shows_everything() { # checks the page's elements after the browser has loaded it
    open_page --dump-dom "file://$folder/page.html" >"$folder/dom.html" || return 1
    for heading in 'At a glance' matmul attention launch copy elementwise embedding optimizer random rng sample Runs; do
        grep -q "<h2>$heading</h2>" "$folder/dom.html" || { echo "no heading $heading"; return 1; }
    done
    [ "$(grep -o '<svg class="bars"' "$folder/dom.html" | wc -l)" -ge 8 ] && grep -q '<svg class="roofline"' "$folder/dom.html"
}
runs_no_script() {
    open_page --dump-dom "file://$folder/hostile.html" >"$folder/dom.html" &&
        grep -q '<title>tessera bench</title>' "$folder/dom.html" && ! grep -qE '<(script|img)' "$folder/dom.html"
}
draws() { # FILE WIDTH OPTION…: makes a picture, which must not be small: pictures of empty pages compress well
    picture=$folder/$1.png
    width=$2
    shift 2
    open_page "$@" --hide-scrollbars --window-size="$width,3000" --screenshot="$picture" "file://$folder/page.html" &&
        [ "$(wc -c <"$picture")" -gt 60000 ]
}
differ() {
    ! cmp -s "$folder/light.png" "$folder/dark.png"
}

point "a complete run, written by cli-bench-complete" finds_run
point "its JSON fits the schema" valid run bench
point "the schema refuses a missing member" invalid run bench 's/"median"/"mean"/'
point "the schema refuses a wrong type" invalid run bench 's/"is_ceiling": false/"is_ceiling": 0/'
point "the schema refuses another version" invalid run bench 's/"schema_version": 2/"schema_version": 3/'
point "a comparison's JSON fits its schema" compares
point "the schema of comparisons refuses a missing member" invalid compare compare 's/"slowdown"/"speedup"/'
point "the schema of comparisons refuses another verdict" invalid compare compare 's/"verdict": "[a-z_]*"/"verdict": "nice"/'
for file in docs/results/*.json; do
    point "$file fits the schema" "$validator" -i "$file" docs/bench.schema.json
done
point "the page of docs/results" published
point "a tuning run" tunes
point "a tuning's JSON fits its schema" valid tuning tuning
point "the schema of tunings refuses a missing member" invalid tuning tuning 's/"winner"/"loser"/'
point "the schema of tunings refuses a wrong type" invalid tuning tuning 's/"with_bias": false/"with_bias": 0/;s/"with_bias": true/"with_bias": 1/'
point "the schema of tunings refuses another version" invalid tuning tuning 's/"schema_version": 1/"schema_version": 2/'
point "the schema of tunings refuses another state" invalid tuning tuning 's/"state": "[a-z]*"/"state": "gone"/'
point "the schema of tunings refuses a benchmark run" invalid run tuning 's/tessera.bench/tessera.tuning/;s/"schema_version": 2/"schema_version": 1/'
point "a report page is made" makes_page page "$folder/run.json"
point "the page is well-formed XML" well_formed page
point "a run gets hostile names" makes_hostile
point "a page of both runs is made" makes_page hostile "$folder/hostile.json" "$folder/run.json"
point "the page with hostile names is well-formed XML" well_formed hostile
if [ -n "$browser" ]; then
    point "the browser shows every part" shows_everything
    point "the browser runs no script of a hostile page" runs_no_script
    point "it draws the page in light colours" draws light 1100 --blink-settings=preferredColorScheme=1
    point "it draws the page in dark colours" draws dark 1100 --blink-settings=preferredColorScheme=0
    point "light and dark colours differ" differ
    point "it draws the page on a narrow screen" draws narrow 390
else
    skip "the page in a browser" "no package of this distribution has chromium"
fi
plan
