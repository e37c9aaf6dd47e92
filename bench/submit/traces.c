#include "bench/submit/traces.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* In bytes. Shorter names of users or machines occur in other texts by chance. */
#define SHORTEST_NAME 3

static bool is_path(const char *text)
{
    for (const char *cursor = text; *cursor != '\0'; cursor++) {
        const bool starts = cursor == text || strchr(" '\"(=:,", cursor[-1]) != NULL;
        if (starts && (cursor[0] == '/' || (cursor[0] == '~' && cursor[1] == '/')) &&
            isalpha((unsigned char)cursor[cursor[0] == '~' ? 2 : 1]))
            return true;
        if (starts && isalpha((unsigned char)cursor[0]) && cursor[1] == ':' && cursor[2] == '\\')
            return true;
    }
    return false;
}

const char *bench_find_path(const json_t *document)
{
    const char *name, *found = NULL;
    json_t *member;
    size_t i;
    if (json_is_string(document))
        return is_path(json_string_value(document)) ? json_string_value(document) : NULL;
    json_array_foreach(document, i, member) found = found != NULL ? found : bench_find_path(member);
    json_object_foreach((json_t *)document, name, member) found =
        found != NULL ? found : bench_find_path(member);
    return found;
}

static bool has_word(const char *text, const char *word)
{
    const size_t length = strlen(word);
    for (const char *cursor = text; (cursor = strstr(cursor, word)) != NULL; cursor++) {
        const bool starts = cursor == text || !isalnum((unsigned char)cursor[-1]);
        if (starts && !isalnum((unsigned char)cursor[length]))
            return true;
    }
    return false;
}

static const char *find_word(const json_t *object, const char *member, const char *word)
{
    const char *text = json_string_value(json_object_get(object, member));
    return text != NULL && has_word(text, word) ? text : NULL;
}

static const char *find_in_notes(const json_t *notes, const char *word)
{
    const char *found = NULL;
    const json_t *first;
    size_t i;
    json_array_foreach(notes, i, first) found =
        found != NULL ? found : find_word(first, "text", word);
    return found;
}

const char *bench_find_name(const json_t *submission, const char *name)
{
    static const char *const of_device[] = {"name", "vendor", "driver_name", "driver_info"};
    const json_t *device = json_array_get(json_object_get(submission, "devices"), 0);
    if (strlen(name) < SHORTEST_NAME)
        return NULL;
    const char *found = find_word(json_object_get(submission, "host"), "cpu", name);
    for (size_t i = 0; i < sizeof of_device / sizeof *of_device && found == NULL; i++)
        found = find_word(device, of_device[i], name);
    if (found == NULL)
        found = find_in_notes(json_object_get(submission, "left_out"), name);
    return found != NULL ? found : find_in_notes(json_object_get(submission, "failures"), name);
}

/* Puts the name of a member in front of the path in `place`, which describes where inside the
 * member a difference is. */
static void put_before(char place[BENCH_PLACE], const char *name)
{
    char inner[BENCH_PLACE];
    snprintf(inner, sizeof inner, "%s", place);
    const bool joined = inner[0] == '\0' || inner[0] == '[';
    snprintf(place, BENCH_PLACE, "%.40s%s%.110s", name, joined ? "" : ".", inner);
}

bool bench_find_difference(const json_t *first, const json_t *other, char place[BENCH_PLACE])
{
    const char *name;
    json_t *member;
    size_t i;
    if (json_equal(first, other))
        return false;
    place[0] = '\0';
    if (json_is_object(first) && json_is_object(other)) {
        json_object_foreach((json_t *)first, name, member)
        {
            if (bench_find_difference(member, json_object_get(other, name), place)) {
                put_before(place, name);
                return true;
            }
        }
    }
    if (json_is_array(first) && json_array_size(first) == json_array_size(other)) {
        json_array_foreach(first, i, member)
        {
            if (bench_find_difference(member, json_array_get(other, i), place)) {
                char index[32];
                snprintf(index, sizeof index, "[%zu]", i);
                put_before(place, index);
                return true;
            }
        }
    }
    return true;
}
