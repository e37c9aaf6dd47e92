/* Makes a submission from a run: one device, its results and their ceilings, and nothing that names
 * a machine or a person. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/submit/members.h"
#include "bench/submit/submit.h"
#include "cli/lib/json.h"
#include "cli/lib/memory.h"

#define NO_UUID "00000000-0000-0000-0000-000000000000"

/* Rounds a number to six digits, so that rounding it again changes nothing. */
static double rounded(double value)
{
    char text[32];
    snprintf(text, sizeof text, "%.6g", value);
    return strtod(text, NULL);
}

static void round_all(json_t *value)
{
    const char *name;
    json_t *member;
    size_t i;
    json_array_foreach(value, i, member) round_all(member);
    json_object_foreach(value, name, member) round_all(member);
    if (json_is_real(value))
        json_real_set(value, rounded(json_real_value(value)));
}

/* Shortens the name of a system, from "Linux 6.1.0-someone's x86_64" to "Linux 6.1.0 x86_64",
 * because the release of a kernel may contain the name of a machine or a company. */
static json_t *system_of(const char *os)
{
    char name[32] = "?", release[32] = "", machine[32] = "";
    if (sscanf(os, "%31s %31s %31s", name, release, machine) < 3)
        return json_string(name);
    release[strspn(release, "0123456789.")] = '\0';
    return json_sprintf("%s %s %s", name, release[0] != '\0' ? release : "?", machine);
}

static bool is_on(const json_t *entry, size_t device)
{
    const json_t *place = json_object_get(entry, "device");
    return json_is_integer(place) && json_integer_value(place) == (json_int_t)device;
}

static json_int_t ceiling_of(const json_t *result)
{
    const json_t *ceiling = json_object_get(result, "ceiling");
    return json_is_object(ceiling) ? json_integer_value(json_object_get(ceiling, "result")) : -1;
}

/* Sets kept[i] for the results of the device, and for the ceilings of the host that these results
 * refer to. */
static void mark(const json_t *results, size_t device, bool *kept)
{
    const json_t *element;
    size_t i;
    json_array_foreach(results, i, element)
    {
        if (!is_on(element, device))
            continue;
        kept[i] = true;
        if (ceiling_of(element) >= 0 && (size_t)ceiling_of(element) < json_array_size(results))
            kept[ceiling_of(element)] = true;
    }
}

/* Changes a result's references to ceilings to their indices in the submission. */
static void renumber(json_t *result, const json_int_t *places, size_t count)
{
    const json_int_t ceiling = ceiling_of(result);
    if (!json_is_null(json_object_get(result, "device")))
        cli_json_add(result, "device", json_integer(0));
    if (ceiling >= 0 && (size_t)ceiling < count)
        cli_json_add(json_object_get(result, "ceiling"), "result", json_integer(places[ceiling]));
}

/* Removes all results but those of the device and their ceilings. */
static void keep_results(json_t *results, size_t device)
{
    const size_t count = json_array_size(results);
    bool *kept = cli_alloc(count + 1, sizeof *kept);
    json_int_t *places = cli_alloc(count + 1, sizeof *places);
    json_int_t next = 0;
    mark(results, device, kept);
    for (size_t i = 0; i < count; i++)
        places[i] = kept[i] ? next++ : -1;
    for (size_t i = count; i-- > 0;)
        if (kept[i])
            renumber(json_array_get(results, i), places, count);
        else
            json_array_remove(results, i);
    free(kept);
    free(places);
}

/* Removes the notes (about cases that were left out, or benchmarks that failed) that are not about
 * the device. */
static void keep_notes(json_t *notes, size_t device)
{
    for (size_t i = json_array_size(notes); i-- > 0;)
        if (is_on(json_array_get(notes, i), device))
            cli_json_add(json_array_get(notes, i), "device", json_integer(0));
        else
            json_array_remove(notes, i);
}

static void keep_device(json_t *devices, size_t place)
{
    json_t *device = json_incref(json_array_get(devices, place));
    json_array_clear(devices);
    cli_json_append(devices, device);
    cli_json_add(device, "index", json_integer(0));
    cli_json_text(device, "uuid", NO_UUID);
}

json_t *bench_submission(const json_t *run, size_t device)
{
    json_t *out = bench_members_select(run), *host = json_object_get(out, "host");
    const char *os = json_string_value(json_object_get(host, "os"));
    cli_json_add(host, "os", system_of(os != NULL ? os : "?"));
    /* The warnings are about all devices of the run, so they are not published. */
    json_array_clear(json_object_get(json_object_get(out, "noise"), "warnings"));
    keep_device(json_object_get(out, "devices"), device);
    keep_results(json_object_get(out, "results"), device);
    keep_notes(json_object_get(out, "left_out"), device);
    keep_notes(json_object_get(out, "failures"), device);
    round_all(out);
    return out;
}
