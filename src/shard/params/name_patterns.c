/* Compares names with patterns: see tsr__shard_match. */
#include <stdbool.h>
#include <string.h>

#include "base/error.h"
#include "shard/params/params.h"
#include "tessera/shard.h"

/* One step of a pattern: a character, any character, any text (a star), or a set of characters.
 * STEP_BAD means that the pattern is malformed. */
typedef enum step_kind { STEP_CHARACTER, STEP_ANY, STEP_STAR, STEP_SET, STEP_BAD } step_kind;
typedef struct pattern_step {
    step_kind kind;
    uint32_t character;
    const char *set; /* for STEP_SET: the text after the opening bracket, up to `next` */
    const char *next;
} pattern_step;

/* Returns the character at `text`, which must not be the end of the text. Sets *next to the start
 * of the next character. Bytes that are not valid UTF-8 count as one character each. */
static uint32_t character_at(const char *text, const char **next)
{
    unsigned char first = (unsigned char)*text++;
    uint32_t character = first;
    int more = first >= 0xf0 ? 3 : first >= 0xe0 ? 2 : first >= 0xc0 ? 1 : 0;
    if (more > 0)
        character = first & (0x3fu >> more);
    for (; more > 0 && ((unsigned char)*text & 0xc0) == 0x80; more--)
        character = character << 6 | ((unsigned char)*text++ & 0x3f);
    *next = text;
    return character;
}

/* Reads a character of a pattern. A backslash before the character is skipped. Returns false if the
 * pattern ends instead. */
static bool escaped_at(const char *pattern, uint32_t *character, const char **next)
{
    if (*pattern == '\\')
        pattern++;
    if (*pattern == '\0')
        return false;
    *character = character_at(pattern, next);
    return true;
}

/* Reads a set of characters, starting after its opening bracket. Sets *inside to whether the set
 * matches `character`, and *next to the text after the set. Returns false if the set is empty or
 * has no closing bracket. */
static bool read_set(const char *set, uint32_t character, bool *inside, const char **next)
{
    bool inverted = *set == '!', found = false, empty = true;
    uint32_t low, high;
    set += inverted;
    for (; *set != ']' || empty; empty = false) {
        if (*set == ']' || !escaped_at(set, &low, &set))
            return false;
        high = low;
        if (set[0] == '-' && set[1] != ']' && !escaped_at(set + 1, &high, &set))
            return false;
        found = found || (character >= low && character <= high);
    }
    *inside = found != inverted;
    *next = set + 1;
    return true;
}

static pattern_step step_at(const char *pattern)
{
    pattern_step step = {.kind = STEP_STAR, .next = pattern + 1};
    bool inside;
    if (*pattern == '*')
        return step;
    if (*pattern == '?') {
        step.kind = STEP_ANY;
    } else if (*pattern == '[') {
        step.set = pattern + 1;
        step.kind = read_set(step.set, 0, &inside, &step.next) ? STEP_SET : STEP_BAD;
    } else {
        step.kind = escaped_at(pattern, &step.character, &step.next) ? STEP_CHARACTER : STEP_BAD;
    }
    return step;
}

static bool step_matches(const pattern_step *step, uint32_t character)
{
    const char *next;
    bool inside = false;
    if (step->kind == STEP_SET)
        return read_set(step->set, character, &inside, &next) && inside;
    return step->kind == STEP_ANY || (step->kind == STEP_CHARACTER && step->character == character);
}

/* Compares a text with a pattern. If a step after a star does not match, the last star before this
 * step is tried again with one more character; earlier stars need not be. Therefore the function
 * needs at most length of the pattern × length of the text steps. */
static bool match_text(const char *pattern, const char *text, const char *end)
{
    const char *star = NULL, *star_text = NULL, *next = text;
    while (text < end) {
        pattern_step step = *pattern != '\0' ? step_at(pattern) : (pattern_step){.kind = STEP_BAD};
        if (step.kind == STEP_STAR) {
            star = pattern = step.next;
            star_text = text;
        } else if (step.kind != STEP_BAD && step_matches(&step, character_at(text, &next))) {
            pattern = step.next;
            text = next;
        } else if (star != NULL) {
            (void)character_at(star_text, &star_text);
            text = star_text;
            pattern = star;
        } else {
            return false;
        }
    }
    while (*pattern == '*')
        pattern++;
    return *pattern == '\0';
}

static bool match_name(const char *pattern, const char *name)
{
    if (strchr(pattern, '.') != NULL)
        return match_text(pattern, name, name + strlen(name));
    for (const char *start = name;; start++) {
        const char *end = start + strcspn(start, ".");
        if (match_text(pattern, start, end))
            return true;
        if (*end == '\0')
            return false;
        start = end;
    }
}

static tsr_status check_pattern(const char *pattern)
{
    const char *rest = pattern + (*pattern == '!');
    TSR__REQUIRE(*rest != '\0', "shard: pattern '%.80s' is empty", pattern);
    while (*rest != '\0') {
        pattern_step step = step_at(rest);
        TSR__REQUIRE(step.kind != STEP_BAD,
                     "shard: pattern '%.80s': '%c' at offset %d is not complete", pattern, *rest,
                     (int)(rest - pattern));
        rest = step.next;
    }
    return TSR_OK;
}

tsr_status tsr__shard_match(const char *const *patterns, const char *name, bool otherwise,
                            bool *matched)
{
    TSR__REQUIRE(name != NULL && matched != NULL, "shard: %s is NULL",
                 name != NULL ? "matched" : "name");
    bool result = otherwise;
    for (; patterns != NULL && *patterns != NULL; patterns++) {
        const char *pattern = *patterns;
        TSR__TRY(check_pattern(pattern));
        bool negated = *pattern == '!';
        if (match_name(pattern + negated, name))
            result = !negated;
    }
    *matched = result;
    return TSR_OK;
}
