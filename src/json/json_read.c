/* The JSON reader: see json.h. */
#include "json/json.h"

#include <inttypes.h>
#include <locale.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"

#define MAX_DEPTH 64
#define MAX_DIGITS 64 /* the largest number of characters of a real number */

tsr_status tsr__json_fail(const tsr__json *json, size_t offset, const char *format, ...)
{
    char reason[768];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reason, sizeof reason, format, arguments);
    va_end(arguments);
    return tsr__fail(TSR_ERR_INVALID, "%s: offset %" PRIu64 ": %s%s", json->what,
                     json->base + offset, json->subject.text, reason);
}

tsr_status tsr__json_fail_context(const tsr__json *json, size_t offset, tsr_status status)
{
    char reason[768];
    snprintf(reason, sizeof reason, "%s", tsr_last_error());
    (void)tsr__json_fail(json, offset, "%s", reason);
    return status;
}

char tsr__json_peek(tsr__json *json)
{
    while (json->at < json->size && json->text[json->at] != '\0' &&
           strchr(" \t\n\r", json->text[json->at]) != NULL)
        json->at++;
    return json->at < json->size ? json->text[json->at] : '\0';
}

/* Records an error: the text says that `what` was expected and which character was found. */
static tsr_status expected(const tsr__json *json, const char *what)
{
    if (json->at >= json->size)
        return tsr__json_fail(json, json->at, "%s expected, but the text ends", what);
    unsigned char found = (unsigned char)json->text[json->at];
    if (found > 0x20 && found < 0x7f)
        return tsr__json_fail(json, json->at, "%s expected, not '%c'", what, found);
    return tsr__json_fail(json, json->at, "%s expected, not byte 0x%02x", what, found);
}

tsr_status tsr__json_enter(tsr__json *json, char bracket)
{
    if (tsr__json_peek(json) != bracket)
        return expected(json, bracket == '{' ? "an object" : "an array");
    json->at++;
    return TSR_OK;
}

/* Moves from one member or element to the next, or past the closing bracket. Expects no comma
 * before the first one. It is the first one if the last character that was read is an opening
 * bracket, because no value ends in an opening bracket. */
static tsr_status between(tsr__json *json, char closing, bool *more)
{
    size_t before = json->at;
    while (before > 0 && strchr(" \t\n\r", json->text[before - 1]) != NULL)
        before--;
    char previous = before > 0 ? json->text[before - 1] : '\0';
    bool first = previous == '{' || previous == '[';
    char next = tsr__json_peek(json);
    if (next == closing) {
        json->at++;
        *more = false;
        return TSR_OK;
    }
    if (!first) {
        if (next != ',')
            return expected(json, closing == '}' ? "',' or '}'" : "',' or ']'");
        json->at++;
        (void)tsr__json_peek(json);
    }
    *more = true;
    return TSR_OK;
}

tsr_status tsr__json_member(tsr__json *json, char key[TSR__JSON_TEXT], bool *more)
{
    bool another = false;
    TSR__TRY(between(json, '}', &another));
    if (another) {
        json->key_at = json->at;
        TSR__TRY(tsr__json_string(json, TSR__JSON_TEXT, key));
        if (tsr__json_peek(json) != ':')
            return expected(json, "':'");
        json->at++;
        (void)tsr__json_peek(json);
    }
    *more = another;
    return TSR_OK;
}

tsr_status tsr__json_element(tsr__json *json, bool *more)
{
    return between(json, ']', more);
}

/* Strings -------------------------------------------------------------------------------------- */

/* The memory into which a string is decoded. If `text` is NULL, the bytes are discarded. */
typedef struct buffer {
    char *text;
    size_t used, size;
} buffer;

static bool put_byte(buffer *to, unsigned byte)
{
    if (to->text == NULL)
        return true;
    if (to->used + 1 >= to->size)
        return false;
    to->text[to->used++] = (char)byte;
    return true;
}

static bool put_character(buffer *to, unsigned long character)
{
    if (character < 0x80)
        return put_byte(to, (unsigned)character);
    if (character < 0x800)
        return put_byte(to, (unsigned)(0xc0 | character >> 6)) &&
               put_byte(to, (unsigned)(0x80 | (character & 0x3f)));
    if (character < 0x10000)
        return put_byte(to, (unsigned)(0xe0 | character >> 12)) &&
               put_byte(to, (unsigned)(0x80 | (character >> 6 & 0x3f))) &&
               put_byte(to, (unsigned)(0x80 | (character & 0x3f)));
    return put_byte(to, (unsigned)(0xf0 | character >> 18)) &&
           put_byte(to, (unsigned)(0x80 | (character >> 12 & 0x3f))) &&
           put_byte(to, (unsigned)(0x80 | (character >> 6 & 0x3f))) &&
           put_byte(to, (unsigned)(0x80 | (character & 0x3f)));
}

/* Reads four hexadecimal digits. Returns false if there are not four. */
static bool read_hex(tsr__json *json, unsigned long *out)
{
    static const char digits[] = "00112233445566778899aAbBcCdDeEfF";
    unsigned long value = 0;
    for (int i = 0; i < 4; i++) {
        char digit = json->at < json->size ? json->text[json->at] : '\0';
        const char *found = digit != '\0' ? strchr(digits, digit) : NULL;
        if (found == NULL)
            return false;
        value = value << 4 | (unsigned long)(found - digits) / 2;
        json->at++;
    }
    *out = value;
    return true;
}

/* Reads what follows "\u": four hexadecimal digits, or a surrogate pair. */
static tsr_status read_unicode(tsr__json *json, size_t start, unsigned long *out)
{
    unsigned long character = 0, low = 0;
    if (!read_hex(json, &character))
        return tsr__json_fail(json, start, "\\u needs four hexadecimal digits");
    if (character >= 0xd800 && character < 0xe000) {
        bool pair = character < 0xdc00 && json->size - json->at >= 2 &&
                    json->text[json->at] == '\\' && json->text[json->at + 1] == 'u';
        json->at += pair ? 2 : 0;
        if (!pair || !read_hex(json, &low) || low < 0xdc00 || low > 0xdfff)
            return tsr__json_fail(json, start, "half of a surrogate pair");
        character = 0x10000 + ((character - 0xd800) << 10) + (low - 0xdc00);
    }
    if (character == 0)
        return tsr__json_fail(json, start, "a string with a zero character");
    *out = character;
    return TSR_OK;
}

static tsr_status read_escape(tsr__json *json, unsigned long *out)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    size_t start = json->at++;
    char escape = json->at < json->size ? json->text[json->at] : '\0';
    const char *found = escape != '\0' ? strchr(from, escape) : NULL;
    if (found != NULL) {
        json->at++;
        *out = (unsigned char)to[found - from];
        return TSR_OK;
    }
    if (escape != 'u')
        return tsr__json_fail(json, start, "an unknown escape");
    json->at++;
    return read_unicode(json, start, out);
}

static tsr_status read_string(tsr__json *json, buffer *to)
{
    if (tsr__json_peek(json) != '"')
        return expected(json, "a string");
    size_t start = json->at++;
    for (;;) {
        unsigned char byte = json->at < json->size ? (unsigned char)json->text[json->at] : 0;
        unsigned long character = byte;
        bool fits;
        if (json->at >= json->size)
            return tsr__json_fail(json, start, "a string without an end");
        if (byte == '"')
            break;
        if (byte < 0x20)
            return tsr__json_fail(json, json->at, "a control character in a string");
        if (byte == '\\') {
            TSR__TRY(read_escape(json, &character));
            fits = put_character(to, character);
        } else {
            json->at++;
            fits = put_byte(to, byte);
        }
        if (!fits)
            return tsr__json_fail(json, start, "a string of more than %zu bytes", to->size - 1);
    }
    json->at++;
    if (to->text != NULL)
        to->text[to->used] = '\0';
    return TSR_OK;
}

tsr_status tsr__json_string(tsr__json *json, size_t size, char *text)
{
    return read_string(json, &(buffer){.text = text, .size = size});
}

/* Numbers -------------------------------------------------------------------------------------- */

static size_t digits_at(const tsr__json *json, size_t offset)
{
    size_t count = 0;
    while (offset + count < json->size && json->text[offset + count] >= '0' &&
           json->text[offset + count] <= '9')
        count++;
    return count;
}

/* Returns the offset of the end of the number that starts at json->at, or 0 if there is no valid
 * number. Sets *whole to whether the number has no minus sign, no fraction and no exponent. */
static size_t number_end(const tsr__json *json, bool *whole)
{
    size_t offset = json->at;
    bool negative = offset < json->size && json->text[offset] == '-';
    offset += negative;
    size_t digits = digits_at(json, offset);
    if (digits == 0 || (digits > 1 && json->text[offset] == '0'))
        return 0;
    offset += digits;
    *whole = !negative;
    if (offset < json->size && json->text[offset] == '.') {
        digits = digits_at(json, offset + 1);
        if (digits == 0)
            return 0;
        offset += 1 + digits;
        *whole = false;
    }
    if (offset < json->size && (json->text[offset] == 'e' || json->text[offset] == 'E')) {
        offset++;
        offset += offset < json->size && (json->text[offset] == '-' || json->text[offset] == '+');
        digits = digits_at(json, offset);
        if (digits == 0)
            return 0;
        offset += digits;
        *whole = false;
    }
    return offset;
}

static bool parse_digits(const char *text, size_t length, uint64_t *out)
{
    uint64_t value = 0;
    for (size_t i = 0; i < length; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        uint64_t digit = (uint64_t)(text[i] - '0');
        if (value > (UINT64_MAX - digit) / 10)
            return false;
        value = value * 10 + digit;
    }
    *out = value;
    return length > 0;
}

tsr_status tsr__json_integer(tsr__json *json, uint64_t *value)
{
    char text[32];
    bool whole = false;
    char first = tsr__json_peek(json);
    size_t start = json->at;
    if (first == '"') {
        TSR__TRY(tsr__json_string(json, sizeof text, text));
        if (!parse_digits(text, strlen(text), value))
            return tsr__json_fail(json, start, "a string that is no integer from 0 to 2^64 - 1");
        return TSR_OK;
    }
    if (first != '-' && (first < '0' || first > '9'))
        return expected(json, "an integer");
    size_t end = number_end(json, &whole);
    if (end == 0 || !whole || !parse_digits(json->text + start, end - start, value))
        return tsr__json_fail(json, start, "a number that is no integer from 0 to 2^64 - 1");
    json->at = end;
    return TSR_OK;
}

tsr_status tsr__json_signed(tsr__json *json, int64_t *value)
{
    bool whole = false;
    char first = tsr__json_peek(json);
    size_t start = json->at, digits = start + (first == '-');
    if (first != '-' && (first < '0' || first > '9'))
        return expected(json, "an integer");
    uint64_t magnitude = 0, limit = (uint64_t)INT64_MAX + (first == '-');
    size_t end = number_end(json, &whole);
    if (end == 0 || !parse_digits(json->text + digits, end - digits, &magnitude) ||
        magnitude > limit)
        return tsr__json_fail(json, start, "a number that is no integer from -2^63 to 2^63 - 1");
    json->at = end;
    *value = tsr__as_i64(first == '-' ? 0 - magnitude : magnitude);
    return TSR_OK;
}

tsr_status tsr__json_real(tsr__json *json, double *value)
{
    bool whole;
    char first = tsr__json_peek(json), text[MAX_DIGITS + 32];
    if (first != '-' && (first < '0' || first > '9'))
        return expected(json, "a number");
    size_t start = json->at, end = number_end(json, &whole), length = 0;
    if (end == 0 || end - start > MAX_DIGITS)
        return tsr__json_fail(json, start, "a number that cannot be read");
    /* strtod expects the decimal point of the current locale, so replace the '.'. */
    const char *point = localeconv()->decimal_point;
    for (size_t i = start; i < end; i++) {
        bool dot = json->text[i] == '.' && strlen(point) < 16;
        length += (size_t)snprintf(text + length, sizeof text - length, "%.*s",
                                   dot ? (int)strlen(point) : 1, dot ? point : json->text + i);
    }
    double read = strtod(text, NULL);
    if (!isfinite(read))
        return tsr__json_fail(json, start, "a number that is too large");
    json->at = end;
    *value = read;
    return TSR_OK;
}

/* The rest ------------------------------------------------------------------------------------- */

static bool take_word(tsr__json *json, const char *word)
{
    size_t length = strlen(word);
    if (json->size - json->at < length || memcmp(json->text + json->at, word, length) != 0)
        return false;
    json->at += length;
    return true;
}

tsr_status tsr__json_bool(tsr__json *json, bool *value)
{
    (void)tsr__json_peek(json);
    if (take_word(json, "true"))
        *value = true;
    else if (take_word(json, "false"))
        *value = false;
    else
        return expected(json, "true or false");
    return TSR_OK;
}

static tsr_status skip_scalar(tsr__json *json)
{
    char first = tsr__json_peek(json);
    bool whole;
    if (first == '"')
        return read_string(json, &(buffer){0});
    if (first == '-' || (first >= '0' && first <= '9')) {
        size_t end = number_end(json, &whole);
        if (end == 0)
            return tsr__json_fail(json, json->at, "a number that cannot be read");
        json->at = end;
        return TSR_OK;
    }
    if (take_word(json, "true") || take_word(json, "false") || take_word(json, "null"))
        return TSR_OK;
    return expected(json, "a value");
}

/* Skips a member's name and colon. The name may have any length. */
static tsr_status skip_key(tsr__json *json)
{
    TSR__TRY(read_string(json, &(buffer){0}));
    if (tsr__json_peek(json) != ':')
        return expected(json, "':'");
    json->at++;
    return TSR_OK;
}

tsr_status tsr__json_skip(tsr__json *json)
{
    char closing[MAX_DEPTH];
    int depth = 0;
    do {
        char first = tsr__json_peek(json);
        bool more = false;
        if (first == '{' || first == '[') {
            if (depth == MAX_DEPTH)
                return tsr__json_fail(json, json->at, "brackets nested more than %d deep",
                                      MAX_DEPTH);
            closing[depth++] = first == '{' ? '}' : ']';
            json->at++;
        } else {
            TSR__TRY(skip_scalar(json));
        }
        while (depth > 0 && !more) {
            TSR__TRY(between(json, closing[depth - 1], &more));
            depth -= !more;
        }
        if (depth > 0 && closing[depth - 1] == '}')
            TSR__TRY(skip_key(json));
    } while (depth > 0);
    return TSR_OK;
}

tsr_status tsr__json_end(tsr__json *json)
{
    (void)tsr__json_peek(json);
    return json->at < json->size ? expected(json, "nothing more") : TSR_OK;
}

int tsr__json_find(const char *const *names, const char *key)
{
    for (int i = 0; names[i] != NULL; i++)
        if (strcmp(names[i], key) == 0)
            return i;
    return -1;
}

tsr_status tsr__json_known(tsr__json *json, const char *const *names, const char *key,
                           unsigned *seen, int *number)
{
    char text[TSR__NAME_SHORT];
    int found = tsr__json_find(names, key);
    if (found < 0 && tsr__name_problem(key, strlen(key)) != NULL)
        return tsr__json_fail(json, json->key_at, "unknown member");
    if (found < 0)
        return tsr__json_fail(json, json->key_at, "unknown member \"%s\"",
                              tsr__name_short(key, text));
    if (*seen & 1u << found)
        return tsr__json_fail(json, json->key_at, "\"%s\" comes twice", key);
    *seen |= 1u << found;
    *number = found;
    return TSR_OK;
}

tsr_status tsr__json_required(tsr__json *json, size_t start, const char *const *names,
                              unsigned seen)
{
    for (int i = 0; names[i]; i++)
        if (!(seen & 1u << i))
            return tsr__json_fail(json, start, "\"%s\" is missing", names[i]);
    return TSR_OK;
}
