/* Each matcher returns how many characters the regular expression in its comment matches. The
 * alternatives of an expression are tried in their order. The expressions are those of llama.cpp
 * (src/llama-vocab.cpp) and of the models' tokenizer.json. */
#include "tokenizer/word_matchers.h"

#include <string.h>

#include "tokenizer/unicode.h"

/* Parts of expressions ------------------------------------------------------------------------- */

/* Returns the number of characters from `position` on that have one of the classes. */
static size_t run_of(const tsr__letter *text, size_t position, size_t end, unsigned classes)
{
    size_t start = position;
    while (position < end && (text[position].classes & classes) != 0)
        position++;
    return position - start;
}

/* Returns the number of characters from `position` on that have none of the classes. */
static size_t run_without(const tsr__letter *text, size_t position, size_t end, unsigned classes)
{
    size_t start = position;
    while (position < end && (text[position].classes & classes) == 0)
        position++;
    return position - start;
}

static bool has_class(const tsr__letter *text, size_t position, size_t end, unsigned classes)
{
    return position < end && (text[position].classes & classes) != 0;
}

static size_t is_code(const tsr__letter *text, size_t position, size_t end, uint32_t code)
{
    return position < end && text[position].code == code;
}

static size_t newlines(const tsr__letter *text, size_t position, size_t end)
{
    return run_of(text, position, end, TSR__NEWLINE);
}

/* How the letters of contractions are compared. */
typedef enum spelling {
    EXACT,      /* 's */
    ASCII_CASE, /* '[sS] */
    ANY_CASE    /* (?i:'s), which also matches U+017F, the long s */
} spelling;

/* 's|'t|'re|'ve|'m|'ll|'d */
static size_t contraction(const tsr__letter *text, size_t position, size_t end, spelling how)
{
    static const char *const all[] = {"s", "t", "re", "ve", "m", "ll", "d"};
    if (!is_code(text, position, end, '\''))
        return 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        size_t size = strlen(all[i]), same = 0;
        for (; same < size && position + 1 + same < end; same++) {
            uint32_t code = text[position + 1 + same].code;
            if (how != EXACT && code >= 'A' && code <= 'Z')
                code += 'a' - 'A';
            if (how == ANY_CASE && code == 0x17f)
                code = 's';
            if (code != (unsigned char)all[i][same])
                break;
        }
        if (same == size)
            return 1 + size;
    }
    return 0;
}

/* \s+(?!\S)|\s+ */
static size_t spaces(const tsr__letter *text, size_t position, size_t end)
{
    size_t count = run_of(text, position, end, TSR__SPACE);
    return position + count < end && count > 1 ? count - 1 : count;
}

/* \s*[\r\n]+|\s+(?!\S)|\s+ */
static size_t line_ends(const tsr__letter *text, size_t position, size_t end)
{
    size_t count = run_of(text, position, end, TSR__SPACE);
    for (size_t i = count; i > 0; i--)
        if (text[position + i - 1].classes & TSR__NEWLINE)
            return i;
    return position + count < end && count > 1 ? count - 1 : count;
}

/* Expressions ---------------------------------------------------------------------------------- */

#define WORD (TSR__LETTER | TSR__NUMBER)

/* 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+ */
size_t tsr__match_gpt2(const tsr__letter *text, size_t position, size_t end, size_t *skip)
{
    size_t length = contraction(text, position, end, EXACT),
           space = is_code(text, position, end, ' ');
    (void)skip;
    if (length > 0)
        return length;
    if ((length = run_of(text, position + space, end, TSR__LETTER)) > 0 ||
        (length = run_of(text, position + space, end, TSR__NUMBER)) > 0 ||
        (length = run_without(text, position + space, end, WORD | TSR__SPACE)) > 0)
        return space + length;
    return spaces(text, position, end);
}

/* The differences between the expressions of Llama 3, Qwen 2 and similar models; see styled(). */
typedef struct style {
    spelling contractions;
    size_t digits;    /* the largest number of digits in a word */
    unsigned letters; /* the classes of a word's letters */
} style;

/* (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|
 * \s*[\r\n]+|\s+(?!\S)|\s+ */
static size_t styled(const tsr__letter *text, size_t position, size_t end, style with)
{
    size_t length = contraction(text, position, end, with.contractions);
    if (length > 0)
        return length;
    size_t before = !has_class(text, position, end, TSR__NEWLINE | WORD);
    if ((length = run_of(text, position + before, end, with.letters)) > 0)
        return before + length;
    if (before > 0 && (length = run_of(text, position, end, with.letters)) > 0)
        return length;
    if ((length = run_of(text, position, end, TSR__NUMBER)) > 0)
        return length < with.digits ? length : with.digits;
    size_t space = is_code(text, position, end, ' ');
    if ((length = run_without(text, position + space, end, with.letters | WORD | TSR__SPACE)) > 0)
        return space + length + newlines(text, position + space + length, end);
    return line_ends(text, position, end);
}

size_t tsr__match_llama3(const tsr__letter *text, size_t position, size_t end, size_t *skip)
{
    (void)skip;
    return styled(text, position, end,
                  (style){.contractions = ASCII_CASE, .digits = 3, .letters = TSR__LETTER});
}

size_t tsr__match_llama3_any_case(const tsr__letter *text, size_t position, size_t end,
                                  size_t *skip)
{
    (void)skip;
    return styled(text, position, end,
                  (style){.contractions = ANY_CASE, .digits = 3, .letters = TSR__LETTER});
}

/* The expression of Llama 3, above styled(), with \p{N} instead of \p{N}{1,3}. */
size_t tsr__match_qwen2(const tsr__letter *text, size_t position, size_t end, size_t *skip)
{
    (void)skip;
    return styled(text, position, end,
                  (style){.contractions = ASCII_CASE, .digits = 1, .letters = TSR__LETTER});
}

size_t tsr__match_qwen2_any_case(const tsr__letter *text, size_t position, size_t end, size_t *skip)
{
    (void)skip;
    return styled(text, position, end,
                  (style){.contractions = ANY_CASE, .digits = 1, .letters = TSR__LETTER});
}

/* The expression of Qwen 2 with [\p{L}\p{M}] in place of \p{L}. */
size_t tsr__match_qwen35(const tsr__letter *text, size_t position, size_t end, size_t *skip)
{
    (void)skip;
    return styled(
        text, position, end,
        (style){.contractions = ASCII_CASE, .digits = 1, .letters = TSR__LETTER | TSR__MARK});
}

size_t tsr__match_qwen35_any_case(const tsr__letter *text, size_t position, size_t end,
                                  size_t *skip)
{
    (void)skip;
    return styled(
        text, position, end,
        (style){.contractions = ANY_CASE, .digits = 1, .letters = TSR__LETTER | TSR__MARK});
}

/* Some expressions divide a word into a first half without small letters and a second half without
 * capitals. This says which letters each half may have. */
typedef enum letter_halves {
    BY_CLASS, /* [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}] and [\p{Ll}\p{Lm}\p{Lo}\p{M}] */
    BY_ASCII  /* \p{L} without a-z, and \p{L} without A-Z */
} letter_halves;

static bool is_first_half(const tsr__letter *letter, letter_halves halves)
{
    if (halves == BY_CLASS)
        return (letter->classes & (TSR__LETTER | TSR__MARK)) != 0 &&
               (letter->classes & TSR__LOWER) == 0;
    return (letter->classes & TSR__LETTER) != 0 && !(letter->code >= 'a' && letter->code <= 'z');
}

static bool is_second_half(const tsr__letter *letter, letter_halves halves)
{
    if (halves == BY_CLASS)
        return (letter->classes & (TSR__LETTER | TSR__MARK)) != 0 &&
               (letter->classes & TSR__UPPER) == 0;
    return (letter->classes & TSR__LETTER) != 0 && !(letter->code >= 'A' && letter->code <= 'Z');
}

/* First*Second+ or, if `first_needed` is true, First+Second*. */
static size_t two_halves(const tsr__letter *text, size_t position, size_t end, letter_halves halves,
                         bool first_needed)
{
    size_t middle = position, last;
    while (middle < end && is_first_half(&text[middle], halves))
        middle++;
    for (last = middle; last < end && is_second_half(&text[last], halves);)
        last++;
    if (first_needed)
        return middle > position ? last - position : 0;
    if (last > middle)
        return last - position;
    /* Move letters from the first half to the second until the second has one. */
    while (middle > position && !is_second_half(&text[middle - 1], halves))
        middle--;
    return middle - position;
}

/* [^\r\n\p{L}\p{N}]?F*S+C?|[^\r\n\p{L}\p{N}]?F+S*C?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|
 * \s*[\r\n]+|\s+(?!\S)|\s+, where F and S are the letters of the two halves and C are contractions
 */
static size_t cased(const tsr__letter *text, size_t position, size_t end, letter_halves halves,
                    size_t digits, bool has_contractions)
{
    size_t before = !has_class(text, position, end, TSR__NEWLINE | WORD), length;
    spelling how = halves == BY_CLASS ? ANY_CASE : ASCII_CASE;
    for (int first_needed = 0; first_needed < 2; first_needed++)
        for (size_t skipped = before + 1; skipped-- > 0;) {
            length = two_halves(text, position + skipped, end, halves, first_needed);
            if (length == 0)
                continue;
            length += skipped;
            return length + (has_contractions ? contraction(text, position + length, end, how) : 0);
        }
    if ((length = run_of(text, position, end, TSR__NUMBER)) > 0)
        return length < digits ? length : digits;
    size_t space = is_code(text, position, end, ' ');
    if ((length = run_without(text, position + space, end, WORD | TSR__SPACE)) > 0) {
        length += space;
        while (has_class(text, position + length, end, TSR__NEWLINE) ||
               is_code(text, position + length, end, '/'))
            length++;
        return length;
    }
    return line_ends(text, position, end);
}

size_t tsr__match_gpt4o(const tsr__letter *text, size_t position, size_t end, size_t *skip)
{
    (void)skip;
    return cased(text, position, end, BY_ASCII, 3, true);
}

size_t tsr__match_gpt4o_by_class(const tsr__letter *text, size_t position, size_t end, size_t *skip)
{
    (void)skip;
    return cased(text, position, end, BY_CLASS, 3, true);
}

size_t tsr__match_tekken(const tsr__letter *text, size_t position, size_t end, size_t *skip)
{
    (void)skip;
    return cased(text, position, end, BY_ASCII, 1, false);
}

size_t tsr__match_tekken_by_class(const tsr__letter *text, size_t position, size_t end,
                                  size_t *skip)
{
    (void)skip;
    return cased(text, position, end, BY_CLASS, 1, false);
}

/* [\r\n] */
size_t tsr__match_newline(const tsr__letter *text, size_t position, size_t end, size_t *skip)
{
    (void)skip;
    return has_class(text, position, end, TSR__NEWLINE);
}

/* \s?C+ for the classes C */
static size_t space_and(const tsr__letter *text, size_t position, size_t end, unsigned classes)
{
    size_t space = has_class(text, position, end, TSR__SPACE),
           length = run_of(text, position + space, end, classes);
    return length > 0 ? space + length : 0;
}

/* \s?\p{L}+ */
size_t tsr__match_letters(const tsr__letter *text, size_t position, size_t end, size_t *skip)
{
    (void)skip;
    return space_and(text, position, end, TSR__LETTER);
}

/* \s?\p{P}+ */
size_t tsr__match_punctuation(const tsr__letter *text, size_t position, size_t end, size_t *skip)
{
    (void)skip;
    return space_and(text, position, end, TSR__PUNCTUATION);
}

/* A range of characters, both ends included. */
typedef struct range {
    uint32_t low, high;
} range;

/* Returns whether a character is in one of the ranges, which are sorted. */
static bool is_in(uint32_t code, const range *ranges, size_t count)
{
    size_t low = 0;
    while (low < count) {
        size_t middle = low + (count - low) / 2;
        if (code > ranges[middle].high)
            low = middle + 1;
        else
            count = middle;
        if (code >= ranges[middle].low && code <= ranges[middle].high)
            return true;
    }
    return false;
}

static size_t run_in(const tsr__letter *text, size_t position, size_t end, const range *ranges,
                     size_t count)
{
    size_t start = position;
    while (position < end && is_in(text[position].code, ranges, count))
        position++;
    return position - start;
}
#define RUN_IN(ranges) run_in(text, position, end, ranges, sizeof(ranges) / sizeof *(ranges))

/* [一-龥ࠀ-一가-퟿]+ */
size_t tsr__match_cjk(const tsr__letter *text, size_t position, size_t end, size_t *skip)
{
    static const range ranges[] = {{0x800, 0x9fa5}, {0xac00, 0xd7ff}};
    (void)skip;
    return RUN_IN(ranges);
}

/* [一-龥぀-ゟ゠-ヿ]+ */
size_t tsr__match_cjk_and_kana(const tsr__letter *text, size_t position, size_t end, size_t *skip)
{
    static const range ranges[] = {{0x3040, 0x30ff}, {0x4e00, 0x9fa5}};
    (void)skip;
    return RUN_IN(ranges);
}

/* \s?[…]+ with the letters that DeepSeek-LLM's expression lists: those that have a case */
size_t tsr__match_cased_letters(const tsr__letter *text, size_t position, size_t end, size_t *skip)
{
    static const range ranges[] = {
        {0x41, 0x5a},       {0x61, 0x7a},       {0xb5, 0xb5},       {0xc0, 0xd6},
        {0xd8, 0xf6},       {0xf8, 0x1ba},      {0x1bc, 0x1bf},     {0x1c4, 0x293},
        {0x295, 0x2af},     {0x370, 0x373},     {0x376, 0x376},     {0x377, 0x377},
        {0x37b, 0x37d},     {0x37f, 0x37f},     {0x386, 0x386},     {0x388, 0x38a},
        {0x38c, 0x38c},     {0x38e, 0x3a1},     {0x3a3, 0x3f5},     {0x3f7, 0x481},
        {0x48a, 0x52f},     {0x531, 0x556},     {0x10a0, 0x10c5},   {0x13a0, 0x13f5},
        {0x13f8, 0x13fd},   {0x1c90, 0x1cba},   {0x1cbd, 0x1cbf},   {0x1d00, 0x1d2b},
        {0x1d6b, 0x1d77},   {0x1d79, 0x1d9a},   {0x1e00, 0x1f15},   {0x1f18, 0x1f1d},
        {0x1f20, 0x1f45},   {0x1f48, 0x1f4d},   {0x1f50, 0x1f57},   {0x1f59, 0x1f59},
        {0x1f5b, 0x1f5b},   {0x1f5d, 0x1f5d},   {0x1f5f, 0x1f7d},   {0x1f80, 0x1fb4},
        {0x1fb6, 0x1fbc},   {0x1fbe, 0x1fbe},   {0x1fc2, 0x1fc4},   {0x1fc6, 0x1fcc},
        {0x1fd0, 0x1fd3},   {0x1fd6, 0x1fdb},   {0x1fe0, 0x1fec},   {0x1ff2, 0x1ff4},
        {0x1ff6, 0x1ffc},   {0x2102, 0x2102},   {0x2107, 0x2107},   {0x210a, 0x2113},
        {0x2115, 0x2115},   {0x2119, 0x211d},   {0x2124, 0x2124},   {0x2126, 0x2126},
        {0x2128, 0x2128},   {0x212a, 0x212d},   {0x212f, 0x2134},   {0x2139, 0x2139},
        {0x213c, 0x213f},   {0x2145, 0x2149},   {0x214e, 0x214e},   {0x2183, 0x2183},
        {0x2184, 0x2184},   {0x2c00, 0x2c7b},   {0x2c7e, 0x2ce4},   {0x2ceb, 0x2cee},
        {0x2cf2, 0x2cf2},   {0x2cf3, 0x2cf3},   {0xa640, 0xa66d},   {0xa680, 0xa69b},
        {0xa722, 0xa76f},   {0xa771, 0xa787},   {0xa78b, 0xa78e},   {0xab70, 0xabbf},
        {0xfb00, 0xfb06},   {0xfb13, 0xfb17},   {0xff21, 0xff3a},   {0xff41, 0xff5a},
        {0x10400, 0x1044f}, {0x104b0, 0x104d3}, {0x104d8, 0x104fb}, {0x10c80, 0x10cb2},
        {0x10cc0, 0x10cf2}, {0x118a0, 0x118df}, {0x1e900, 0x1e943}};
    size_t space = has_class(text, position, end, TSR__SPACE);
    (void)skip;
    position += space;
    size_t length = RUN_IN(ranges);
    return length > 0 ? space + length : 0;
}

/* \s?[!-/:-~！-／：-～‘-‟　-。]+ */
size_t tsr__match_wide_punctuation(const tsr__letter *text, size_t position, size_t end,
                                   size_t *skip)
{
    static const range ranges[] = {{0x21, 0x2f},     {0x3a, 0x7e},     {0x2018, 0x201f},
                                   {0x3000, 0x3002}, {0xff01, 0xff0f}, {0xff1a, 0xff5e}};
    size_t space = has_class(text, position, end, TSR__SPACE);
    (void)skip;
    size_t length = (position += space, RUN_IN(ranges));
    if (length > 0)
        return space + length;
    position -= space; /* U+3000 is a space, too */
    return RUN_IN(ranges);
}

/* \s+$ */
size_t tsr__match_last_spaces(const tsr__letter *text, size_t position, size_t end, size_t *skip)
{
    size_t count = run_of(text, position, end, TSR__SPACE);
    if (position + count == end)
        return count;
    *skip = count + 1;
    return 0;
}

/* \p{N} */
size_t tsr__match_number(const tsr__letter *text, size_t position, size_t end, size_t *skip)
{
    (void)skip;
    return has_class(text, position, end, TSR__NUMBER);
}

/* \p{N}{1,3} */
size_t tsr__match_numbers_up_to_3(const tsr__letter *text, size_t position, size_t end,
                                  size_t *skip)
{
    (void)skip;
    return run_of(text, position, end - position > 3 ? position + 3 : end, TSR__NUMBER);
}

/* \p{N}+ */
size_t tsr__match_numbers(const tsr__letter *text, size_t position, size_t end, size_t *skip)
{
    (void)skip;
    return run_of(text, position, end, TSR__NUMBER);
}

/* [0-9][0-9][0-9] */
size_t tsr__match_three_digits(const tsr__letter *text, size_t position, size_t end, size_t *skip)
{
    (void)skip;
    for (size_t i = 0; i < 3; i++)
        if (position + i >= end || text[position + i].code < '0' || text[position + i].code > '9')
            return 0;
    return 3;
}

static bool is_ascii_letter(uint32_t code)
{
    return (code >= 'a' && code <= 'z') || (code >= 'A' && code <= 'Z');
}

/* [!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|
 *  ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+ */
size_t tsr__match_deepseek3(const tsr__letter *text, size_t position, size_t end, size_t *skip)
{
    uint32_t code = text[position].code;
    size_t length = 1;
    (void)skip;
    if (code > 0x20 && code < 0x7f && !is_ascii_letter(code) && !(code >= '0' && code <= '9')) {
        while (position + length < end && is_ascii_letter(text[position + length].code))
            length++;
        if (length > 1)
            return length;
    }
    const unsigned signs = TSR__PUNCTUATION | TSR__SYMBOL, word = TSR__LETTER | TSR__MARK;
    size_t before = !has_class(text, position, end, TSR__NEWLINE | TSR__LETTER | signs);
    if ((length = run_of(text, position + before, end, word)) > 0)
        return before + length;
    if (before > 0 && (length = run_of(text, position, end, word)) > 0)
        return length;
    size_t space = is_code(text, position, end, ' ');
    if ((length = run_of(text, position + space, end, signs)) > 0)
        return space + length + newlines(text, position + space + length, end);
    return line_ends(text, position, end);
}

static size_t signs_and(const tsr__letter *text, size_t position, size_t end, const char *others)
{
    size_t start = position;
    while (position < end && ((text[position].classes & TSR__PUNCTUATION) != 0 ||
                              (text[position].code > 0 && text[position].code < 0x80 &&
                               strchr(others, (int)text[position].code) != NULL)))
        position++;
    return position - start;
}

/* [\p{P}\$\+<=>\^~\|`]+ */
size_t tsr__match_falcon_signs(const tsr__letter *text, size_t position, size_t end, size_t *skip)
{
    (void)skip;
    return signs_and(text, position, end, "$+<=>^~|`");
}

/* [\p{P}\$\+<=>\^~\|]+ */
size_t tsr__match_default_signs(const tsr__letter *text, size_t position, size_t end, size_t *skip)
{
    (void)skip;
    return signs_and(text, position, end, "$+<=>^~|");
}

/*  ?[^(\s|.,!?…。，、।۔،)]+ */
size_t tsr__match_bloom(const tsr__letter *text, size_t position, size_t end, size_t *skip)
{
    static const uint32_t excluded[] = {'(',    '|',    '.',    ',',   '!',   '?',   0x2026,
                                        0x3002, 0xff0c, 0x3001, 0x964, 0x6d4, 0x60c, ')'};
    size_t space = is_code(text, position, end, ' '), last = position + space;
    (void)skip;
    for (; last < end; last++) {
        bool is_excluded = (text[last].classes & TSR__SPACE) != 0;
        for (size_t i = 0; i < sizeof excluded / sizeof *excluded; i++)
            is_excluded = is_excluded || text[last].code == excluded[i];
        if (is_excluded)
            break;
    }
    return last > position + space ? last - position : 0;
}

/* "▁" and what follows it up to the next one */
size_t tsr__match_after_space_sign(const tsr__letter *text, size_t position, size_t end,
                                   size_t *skip)
{
    (void)skip;
    if (!is_code(text, position, end, 0x2581))
        return 0;
    size_t length = 1;
    while (position + length < end && text[position + length].code != 0x2581)
        length++;
    return length;
}
