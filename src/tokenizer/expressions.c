/* The known expressions. Each matcher gives what the regular expression of its comment matches; the
 * alternatives of an expression are tried in their order. The expressions and the names are those
 * of llama.cpp (src/llama-vocab.cpp) and of the models' tokenizer.json. */
#include "tokenizer/expressions.h"

#include <stdio.h>
#include <string.h>

#include "tokenizer/unicode.h"

/* Parts of expressions ------------------------------------------------------------------------- */

/* Returns the number of characters from `at` on that have one of the classes. */
static size_t run_of(const tsr__letter *text, size_t at, size_t end, unsigned classes)
{
    size_t start = at;
    while (at < end && (text[at].classes & classes) != 0)
        at++;
    return at - start;
}

/* Returns the number of characters from `at` on that have none of the classes. */
static size_t run_without(const tsr__letter *text, size_t at, size_t end, unsigned classes)
{
    size_t start = at;
    while (at < end && (text[at].classes & classes) == 0)
        at++;
    return at - start;
}

static bool has(const tsr__letter *text, size_t at, size_t end, unsigned classes)
{
    return at < end && (text[at].classes & classes) != 0;
}

static size_t is_code(const tsr__letter *text, size_t at, size_t end, uint32_t code)
{
    return at < end && text[at].code == code;
}

static size_t newlines(const tsr__letter *text, size_t at, size_t end)
{
    return run_of(text, at, end, TSR__NEWLINE);
}

/* How contractions are compared. */
typedef enum spelling {
    EXACT,      /* 's */
    ASCII_CASE, /* '[sS] */
    ANY_CASE    /* (?i:'s), which also matches U+017F, the long s */
} spelling;

/* 's|'t|'re|'ve|'m|'ll|'d */
static size_t contraction(const tsr__letter *text, size_t at, size_t end, spelling how)
{
    static const char *const all[] = {"s", "t", "re", "ve", "m", "ll", "d"};
    if (!is_code(text, at, end, '\''))
        return 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        size_t size = strlen(all[i]), same = 0;
        for (; same < size && at + 1 + same < end; same++) {
            uint32_t code = text[at + 1 + same].code;
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
static size_t spaces(const tsr__letter *text, size_t at, size_t end)
{
    size_t count = run_of(text, at, end, TSR__SPACE);
    return at + count < end && count > 1 ? count - 1 : count;
}

/* \s*[\r\n]+|\s+(?!\S)|\s+ */
static size_t lines(const tsr__letter *text, size_t at, size_t end)
{
    size_t count = run_of(text, at, end, TSR__SPACE);
    for (size_t i = count; i > 0; i--)
        if (text[at + i - 1].classes & TSR__NEWLINE)
            return i;
    return at + count < end && count > 1 ? count - 1 : count;
}

/* Expressions ---------------------------------------------------------------------------------- */

#define WORD (TSR__LETTER | TSR__NUMBER)

/* 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+ */
static size_t gpt2(const tsr__letter *text, size_t at, size_t end, size_t *skip)
{
    size_t length = contraction(text, at, end, EXACT), space = is_code(text, at, end, ' ');
    (void)skip;
    if (length > 0)
        return length;
    if ((length = run_of(text, at + space, end, TSR__LETTER)) > 0 ||
        (length = run_of(text, at + space, end, TSR__NUMBER)) > 0 ||
        (length = run_without(text, at + space, end, WORD | TSR__SPACE)) > 0)
        return space + length;
    return spaces(text, at, end);
}

/* The differences between the expressions of Llama 3, Qwen 2 and the like, which otherwise are the
 * same; see styled(). */
typedef struct style {
    spelling contractions;
    size_t digits;    /* at most this many digits in a piece */
    unsigned letters; /* the classes of a word's letters */
} style;

/* (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|
 * \s*[\r\n]+|\s+(?!\S)|\s+ */
static size_t styled(const tsr__letter *text, size_t at, size_t end, style with)
{
    size_t length = contraction(text, at, end, with.contractions);
    if (length > 0)
        return length;
    size_t before = !has(text, at, end, TSR__NEWLINE | WORD);
    if ((length = run_of(text, at + before, end, with.letters)) > 0)
        return before + length;
    if (before > 0 && (length = run_of(text, at, end, with.letters)) > 0)
        return length;
    if ((length = run_of(text, at, end, TSR__NUMBER)) > 0)
        return length < with.digits ? length : with.digits;
    size_t space = is_code(text, at, end, ' ');
    if ((length = run_without(text, at + space, end, with.letters | WORD | TSR__SPACE)) > 0)
        return space + length + newlines(text, at + space + length, end);
    return lines(text, at, end);
}

static size_t llama3(const tsr__letter *text, size_t at, size_t end, size_t *skip)
{
    (void)skip;
    return styled(text, at, end,
                  (style){.contractions = ASCII_CASE, .digits = 3, .letters = TSR__LETTER});
}

static size_t llama3_any_case(const tsr__letter *text, size_t at, size_t end, size_t *skip)
{
    (void)skip;
    return styled(text, at, end,
                  (style){.contractions = ANY_CASE, .digits = 3, .letters = TSR__LETTER});
}

/* As llama3, with \p{N} instead of \p{N}{1,3}. */
static size_t qwen2(const tsr__letter *text, size_t at, size_t end, size_t *skip)
{
    (void)skip;
    return styled(text, at, end,
                  (style){.contractions = ASCII_CASE, .digits = 1, .letters = TSR__LETTER});
}

static size_t qwen2_any_case(const tsr__letter *text, size_t at, size_t end, size_t *skip)
{
    (void)skip;
    return styled(text, at, end,
                  (style){.contractions = ANY_CASE, .digits = 1, .letters = TSR__LETTER});
}

/* As qwen2, with [\p{L}\p{M}] for letters. */
static size_t qwen35(const tsr__letter *text, size_t at, size_t end, size_t *skip)
{
    (void)skip;
    return styled(
        text, at, end,
        (style){.contractions = ASCII_CASE, .digits = 1, .letters = TSR__LETTER | TSR__MARK});
}

static size_t qwen35_any_case(const tsr__letter *text, size_t at, size_t end, size_t *skip)
{
    (void)skip;
    return styled(
        text, at, end,
        (style){.contractions = ANY_CASE, .digits = 1, .letters = TSR__LETTER | TSR__MARK});
}

/* Which letters may stand in the first and in the second part of a word. */
typedef enum parts_of_words {
    BY_CLASS, /* [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}] and [\p{Ll}\p{Lm}\p{Lo}\p{M}] */
    BY_ASCII  /* \p{L} without a-z, and \p{L} without A-Z */
} parts_of_words;

static bool is_first_part(const tsr__letter *letter, parts_of_words parts)
{
    if (parts == BY_CLASS)
        return (letter->classes & (TSR__LETTER | TSR__MARK)) != 0 &&
               (letter->classes & TSR__LOWER) == 0;
    return (letter->classes & TSR__LETTER) != 0 && !(letter->code >= 'a' && letter->code <= 'z');
}

static bool is_second_part(const tsr__letter *letter, parts_of_words parts)
{
    if (parts == BY_CLASS)
        return (letter->classes & (TSR__LETTER | TSR__MARK)) != 0 &&
               (letter->classes & TSR__UPPER) == 0;
    return (letter->classes & TSR__LETTER) != 0 && !(letter->code >= 'A' && letter->code <= 'Z');
}

/* First*Second+, or with `first_needed` First+Second*. */
static size_t two_parts(const tsr__letter *text, size_t at, size_t end, parts_of_words parts,
                        bool first_needed)
{
    size_t middle = at, last;
    while (middle < end && is_first_part(&text[middle], parts))
        middle++;
    for (last = middle; last < end && is_second_part(&text[last], parts);)
        last++;
    if (first_needed)
        return middle > at ? last - at : 0;
    if (last > middle)
        return last - at;
    /* The first part gives back letters until the second part has one. */
    while (middle > at && !is_second_part(&text[middle - 1], parts))
        middle--;
    return middle - at;
}

/* [^\r\n\p{L}\p{N}]?F*S+C?|[^\r\n\p{L}\p{N}]?F+S*C?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|
 * \s*[\r\n]+|\s+(?!\S)|\s+, where F and S are the parts of words and C are contractions */
static size_t cased(const tsr__letter *text, size_t at, size_t end, parts_of_words parts,
                    size_t digits, bool has_contractions)
{
    size_t before = !has(text, at, end, TSR__NEWLINE | WORD), length;
    spelling how = parts == BY_CLASS ? ANY_CASE : ASCII_CASE;
    for (int first_needed = 0; first_needed < 2; first_needed++)
        for (size_t skipped = before + 1; skipped-- > 0;) {
            length = two_parts(text, at + skipped, end, parts, first_needed);
            if (length == 0)
                continue;
            length += skipped;
            return length + (has_contractions ? contraction(text, at + length, end, how) : 0);
        }
    if ((length = run_of(text, at, end, TSR__NUMBER)) > 0)
        return length < digits ? length : digits;
    size_t space = is_code(text, at, end, ' ');
    if ((length = run_without(text, at + space, end, WORD | TSR__SPACE)) > 0) {
        length += space;
        while (has(text, at + length, end, TSR__NEWLINE) || is_code(text, at + length, end, '/'))
            length++;
        return length;
    }
    return lines(text, at, end);
}

static size_t gpt4o(const tsr__letter *text, size_t at, size_t end, size_t *skip)
{
    (void)skip;
    return cased(text, at, end, BY_ASCII, 3, true);
}

static size_t gpt4o_by_class(const tsr__letter *text, size_t at, size_t end, size_t *skip)
{
    (void)skip;
    return cased(text, at, end, BY_CLASS, 3, true);
}

static size_t tekken(const tsr__letter *text, size_t at, size_t end, size_t *skip)
{
    (void)skip;
    return cased(text, at, end, BY_ASCII, 1, false);
}

static size_t tekken_by_class(const tsr__letter *text, size_t at, size_t end, size_t *skip)
{
    (void)skip;
    return cased(text, at, end, BY_CLASS, 1, false);
}

/* [\r\n] */
static size_t newline(const tsr__letter *text, size_t at, size_t end, size_t *skip)
{
    (void)skip;
    return has(text, at, end, TSR__NEWLINE);
}

/* \s?C+ for the classes C */
static size_t space_and(const tsr__letter *text, size_t at, size_t end, unsigned classes)
{
    size_t space = has(text, at, end, TSR__SPACE), length = run_of(text, at + space, end, classes);
    return length > 0 ? space + length : 0;
}

/* \s?\p{L}+ */
static size_t letters(const tsr__letter *text, size_t at, size_t end, size_t *skip)
{
    (void)skip;
    return space_and(text, at, end, TSR__LETTER);
}

/* \s?\p{P}+ */
static size_t punctuation(const tsr__letter *text, size_t at, size_t end, size_t *skip)
{
    (void)skip;
    return space_and(text, at, end, TSR__PUNCTUATION);
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

static size_t run_in(const tsr__letter *text, size_t at, size_t end, const range *ranges,
                     size_t count)
{
    size_t start = at;
    while (at < end && is_in(text[at].code, ranges, count))
        at++;
    return at - start;
}
#define RUN_IN(ranges) run_in(text, at, end, ranges, sizeof(ranges) / sizeof *(ranges))

/* [一-龥ࠀ-一가-퟿]+ */
static size_t cjk(const tsr__letter *text, size_t at, size_t end, size_t *skip)
{
    static const range ranges[] = {{0x800, 0x9fa5}, {0xac00, 0xd7ff}};
    (void)skip;
    return RUN_IN(ranges);
}

/* [一-龥぀-ゟ゠-ヿ]+ */
static size_t cjk_and_kana(const tsr__letter *text, size_t at, size_t end, size_t *skip)
{
    static const range ranges[] = {{0x3040, 0x30ff}, {0x4e00, 0x9fa5}};
    (void)skip;
    return RUN_IN(ranges);
}

/* \s?[…]+ with the letters that DeepSeek-LLM's expression lists: those that have a case */
static size_t cased_letters(const tsr__letter *text, size_t at, size_t end, size_t *skip)
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
    size_t space = has(text, at, end, TSR__SPACE);
    (void)skip;
    at += space;
    size_t length = RUN_IN(ranges);
    return length > 0 ? space + length : 0;
}

/* \s?[!-/:-~！-／：-～‘-‟　-。]+ */
static size_t wide_punctuation(const tsr__letter *text, size_t at, size_t end, size_t *skip)
{
    static const range ranges[] = {{0x21, 0x2f},     {0x3a, 0x7e},     {0x2018, 0x201f},
                                   {0x3000, 0x3002}, {0xff01, 0xff0f}, {0xff1a, 0xff5e}};
    size_t space = has(text, at, end, TSR__SPACE);
    (void)skip;
    size_t length = (at += space, RUN_IN(ranges));
    if (length > 0)
        return space + length;
    at -= space; /* U+3000 is a space, too */
    return RUN_IN(ranges);
}

/* \s+$ */
static size_t last_spaces(const tsr__letter *text, size_t at, size_t end, size_t *skip)
{
    size_t count = run_of(text, at, end, TSR__SPACE);
    if (at + count == end)
        return count;
    *skip = count + 1;
    return 0;
}

/* \p{N} */
static size_t number(const tsr__letter *text, size_t at, size_t end, size_t *skip)
{
    (void)skip;
    return has(text, at, end, TSR__NUMBER);
}

/* \p{N}{1,3} */
static size_t numbers_up_to_3(const tsr__letter *text, size_t at, size_t end, size_t *skip)
{
    (void)skip;
    return run_of(text, at, end - at > 3 ? at + 3 : end, TSR__NUMBER);
}

/* \p{N}+ */
static size_t numbers(const tsr__letter *text, size_t at, size_t end, size_t *skip)
{
    (void)skip;
    return run_of(text, at, end, TSR__NUMBER);
}

/* [0-9][0-9][0-9] */
static size_t three_digits(const tsr__letter *text, size_t at, size_t end, size_t *skip)
{
    (void)skip;
    for (size_t i = 0; i < 3; i++)
        if (at + i >= end || text[at + i].code < '0' || text[at + i].code > '9')
            return 0;
    return 3;
}

static bool is_ascii_letter(uint32_t code)
{
    return (code >= 'a' && code <= 'z') || (code >= 'A' && code <= 'Z');
}

/* [!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|
 *  ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+ */
static size_t deepseek3(const tsr__letter *text, size_t at, size_t end, size_t *skip)
{
    uint32_t code = text[at].code;
    size_t length = 1;
    (void)skip;
    if (code > 0x20 && code < 0x7f && !is_ascii_letter(code) && !(code >= '0' && code <= '9')) {
        while (at + length < end && is_ascii_letter(text[at + length].code))
            length++;
        if (length > 1)
            return length;
    }
    const unsigned signs = TSR__PUNCTUATION | TSR__SYMBOL, word = TSR__LETTER | TSR__MARK;
    size_t before = !has(text, at, end, TSR__NEWLINE | TSR__LETTER | signs);
    if ((length = run_of(text, at + before, end, word)) > 0)
        return before + length;
    if (before > 0 && (length = run_of(text, at, end, word)) > 0)
        return length;
    size_t space = is_code(text, at, end, ' ');
    if ((length = run_of(text, at + space, end, signs)) > 0)
        return space + length + newlines(text, at + space + length, end);
    return lines(text, at, end);
}

static size_t signs_and(const tsr__letter *text, size_t at, size_t end, const char *others)
{
    size_t start = at;
    while (at < end && ((text[at].classes & TSR__PUNCTUATION) != 0 ||
                        (text[at].code > 0 && text[at].code < 0x80 &&
                         strchr(others, (int)text[at].code) != NULL)))
        at++;
    return at - start;
}

/* [\p{P}\$\+<=>\^~\|`]+ */
static size_t falcon_signs(const tsr__letter *text, size_t at, size_t end, size_t *skip)
{
    (void)skip;
    return signs_and(text, at, end, "$+<=>^~|`");
}

/* [\p{P}\$\+<=>\^~\|]+ */
static size_t default_signs(const tsr__letter *text, size_t at, size_t end, size_t *skip)
{
    (void)skip;
    return signs_and(text, at, end, "$+<=>^~|");
}

/*  ?[^(\s|.,!?…。，、।۔،)]+ */
static size_t bloom(const tsr__letter *text, size_t at, size_t end, size_t *skip)
{
    static const uint32_t excluded[] = {'(',    '|',    '.',    ',',   '!',   '?',   0x2026,
                                        0x3002, 0xff0c, 0x3001, 0x964, 0x6d4, 0x60c, ')'};
    size_t space = is_code(text, at, end, ' '), last = at + space;
    (void)skip;
    for (; last < end; last++) {
        bool is_excluded = (text[last].classes & TSR__SPACE) != 0;
        for (size_t i = 0; i < sizeof excluded / sizeof *excluded; i++)
            is_excluded = is_excluded || text[last].code == excluded[i];
        if (is_excluded)
            break;
    }
    return last > at + space ? last - at : 0;
}

/* Tables --------------------------------------------------------------------------------------- */

/* The names of GGUF files. Names in a row stand for the same steps. */
typedef struct named {
    const char *names; /* separated by spaces */
    bool whole_words, adds_bos;
    tsr__matcher steps[TSR__MAX_WORD_STEPS];
} named;

static const named all_named[] = {
    {"llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2", true, true, {llama3}},
    {"dbrx smaug-bpe chatglm-bpe glm4", false, false, {llama3}},
    {"gpt-2 phi-2 jina-es jina-de gigachat jina-v1-en jina-v2-es jina-v2-de jina-v2-code "
     "roberta-bpe mpt olmo jais trillion granite-docling",
     false,
     false,
     {gpt2}},
    {"starcoder refact command-r smollm codeshell exaone minerva-7b", false, false, {number, gpt2}},
    {"qwen2 deepseek-r1-qwen stablelm2 megrez hunyuan grok-2 solar-open", false, false, {qwen2}},
    {"qwen35", false, false, {qwen35}},
    {"deepseek-llm",
     false,
     false,
     {newline, cased_letters, wide_punctuation, last_spaces, cjk, numbers}},
    {"deepseek-coder", false, false, {newline, letters, punctuation, cjk, number}},
    {"deepseek-v3 hunyuan-dense", false, false, {numbers_up_to_3, cjk_and_kana, deepseek3}},
    {"falcon", false, false, {falcon_signs, gpt2, three_digits}},
    {"default", false, false, {default_signs, gpt2, numbers, three_digits}},
    {"poro-chat bloom gpt3-finnish", false, false, {bloom}},
    {"viking", false, false, {bloom, number}},
    {"tekken", true, true, {tekken}},
    {"gpt-4o llama4", false, false, {gpt4o}},
};

/* Returns whether `list`, words separated by spaces, has the word `name`. */
static bool has_name(const char *list, const char *name)
{
    size_t length = strlen(name);
    if (length == 0 || strchr(name, ' ') != NULL)
        return false;
    for (const char *at = list; (at = strstr(at, name)) != NULL; at++)
        if ((at == list || at[-1] == ' ') && (at[length] == '\0' || at[length] == ' '))
            return true;
    return false;
}

tsr_status tsr__words_by_name(const char *name, tsr__words *words, bool *whole_words,
                              bool *adds_bos)
{
    for (size_t i = 0; i < sizeof all_named / sizeof *all_named; i++) {
        const named *row = &all_named[i];
        if (!has_name(row->names, name))
            continue;
        words->count = 0;
        while (words->count < TSR__MAX_WORD_STEPS && row->steps[words->count] != NULL) {
            words->steps[words->count] = row->steps[words->count];
            words->count++;
        }
        tsr__words_set_name(words, name);
        *whole_words = row->whole_words;
        *adds_bos = row->adds_bos;
        return TSR_OK;
    }
    return tsr__fail(TSR_ERR_UNSUPPORTED,
                     "tokenizer: the pre-tokenizer '%.80s' is not known, so texts cannot be cut "
                     "into words",
                     name);
}

/* The regular expressions of tokenizer.json. The first ones match every text completely. */
#define COVERING 6
#define SPACES "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define FIRST "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define SECOND "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASED_LETTERS                                                                              \
    "\\s?[A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293"           \
    "\u0295-\u02af\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a"                 \
    "\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-"               \
    "\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-"               \
    "\u1d77\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-"               \
    "\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-"                 \
    "\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-"               \
    "\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-"                  \
    "\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-"                 \
    "\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-"                \
    "\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-"               \
    "\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-"                     \
    "\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df"                    \
    "\U0001e900-\U0001e943]+"
static const struct {
    const char *expression, *name; /* a name is NULL if several kinds have this step */
    tsr__matcher matcher;
} all_expressions[] = {
    {CONTRACTIONS
     "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" SPACES,
     "llama-bpe", llama3_any_case},
    {CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" SPACES,
     "qwen2", qwen2_any_case},
    {CONTRACTIONS
     "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" SPACES,
     "qwen35", qwen35_any_case},
    {"'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+", "gpt-2",
     gpt2},
    {FIRST "*" SECOND "+" CONTRACTIONS "?|" FIRST "+" SECOND "*" CONTRACTIONS
           "?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" SPACES,
     "gpt-4o", gpt4o_by_class},
    {FIRST "*" SECOND "+|" FIRST "+" SECOND "*|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" SPACES,
     "tekken", tekken_by_class},
    {"[!\"#$%&'()*+,\\-./"
     ":;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|"
     " ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
     "deepseek-v3", deepseek3},
    {"[\\r\\n]", "deepseek", newline},
    {"\\s?\\p{L}+", "deepseek-coder", letters},
    {"\\s?\\p{P}+", "deepseek-coder", punctuation},
    {CASED_LETTERS, "deepseek-llm", cased_letters},
    {"\\s?[!-/:-~！-／：-～‘-‟　-。]+", "deepseek-llm", wide_punctuation},
    {"\\s+$", "deepseek-llm", last_spaces},
    {"[一-龥ࠀ-一가-퟿]+", NULL, cjk},
    {"[一-龥぀-ゟ゠-ヿ]+", "deepseek-v3", cjk_and_kana},
    {"\\p{N}{1,3}", "deepseek-v3", numbers_up_to_3},
    {"\\p{N}+", NULL, numbers},
    {"\\p{N}", NULL, number},
    {"[0-9][0-9][0-9]", NULL, three_digits},
    {" ?[^(\\s|[.,!?…。，、।۔،])]+", "bloom", bloom},
};

/* Appends a step and names the words after it, unless the name is NULL. */
static tsr_status add_step(tsr__words *words, tsr__matcher matcher, const char *name)
{
    TSR__REQUIRE(words->count < TSR__MAX_WORD_STEPS,
                 "tokenizer: more than %d steps cut a text into words", TSR__MAX_WORD_STEPS);
    words->steps[words->count++] = matcher;
    if (name != NULL)
        tsr__words_set_name(words, name);
    return TSR_OK;
}

/* Returns whether an expression is one of the table, which writes line breaks as \\r and \\n. Files
 * may have the characters themselves. */
static bool is_expression(const char *expression, const char *known)
{
    for (; *expression != '\0'; expression++, known++) {
        bool is_break = *expression == '\r' || *expression == '\n';
        if (is_break && *known == '\\' && known[1] == (*expression == '\r' ? 'r' : 'n'))
            known++;
        else if (is_break || *expression != *known)
            return false;
    }
    return *known == '\0';
}

tsr_status tsr__words_add_expression(tsr__words *words, const char *expression, bool must_cover)
{
    char shown[TSR__SPELLING_TEXT];
    for (size_t i = 0; i < sizeof all_expressions / sizeof *all_expressions; i++)
        if (is_expression(expression, all_expressions[i].expression) &&
            (!must_cover || i < COVERING))
            return add_step(words, all_expressions[i].matcher, all_expressions[i].name);
    return tsr__fail(TSR_ERR_UNSUPPORTED,
                     "tokenizer: the regular expression %s is not known, so texts cannot be cut "
                     "into words",
                     tsr__spelling_text(expression, strlen(expression), shown));
}

/* Returns the step of GGUF files that tokenizer.json has as `matcher`. They differ only in whether
 * U+017F, the long s, counts as an s behind an apostrophe. */
static tsr__matcher named_step(tsr__matcher matcher)
{
    return matcher == llama3_any_case   ? llama3
           : matcher == qwen2_any_case  ? qwen2
           : matcher == qwen35_any_case ? qwen35
                                        : matcher;
}

tsr_status tsr__words_find_name(const tsr__words *words, bool whole_words,
                                char out[TSR__WORDS_NAME])
{
    for (size_t i = 0; i < sizeof all_named / sizeof *all_named; i++) {
        const named *row = &all_named[i];
        int step = 0;
        while (step < words->count && row->steps[step] == named_step(words->steps[step]))
            step++;
        if (step < words->count || row->steps[step] != NULL || row->whole_words != whole_words)
            continue;
        const char *name = has_name(row->names, words->name) ? words->name : row->names;
        snprintf(out, TSR__WORDS_NAME, "%.*s", (int)strcspn(name, " "), name);
        return TSR_OK;
    }
    return tsr__fail(
        TSR_ERR_UNSUPPORTED, "tokenizer: GGUF files cannot say how words are cut (%s%s)",
        words->count > 0 ? words->name : "not at all", whole_words ? ", with ignore_merges" : "");
}

tsr_status tsr__words_find_expressions(const tsr__words *words,
                                       const char *out[TSR__MAX_WORD_STEPS])
{
    for (int step = 0; step < words->count; step++) {
        out[step] = NULL;
        for (size_t i = 0; i < sizeof all_expressions / sizeof *all_expressions; i++)
            if (named_step(all_expressions[i].matcher) == named_step(words->steps[step]))
                out[step] = all_expressions[i].expression;
        if (out[step] == NULL)
            return tsr__fail(TSR_ERR_UNSUPPORTED,
                             "tokenizer: the words of '%s' have no regular expression for "
                             "tokenizer.json",
                             words->name);
    }
    return TSR_OK;
}

tsr_status tsr__words_add_gpt2(tsr__words *words)
{
    /* StarCoder cuts off digits first. */
    return add_step(words, gpt2, words->count > 0 ? "starcoder" : "gpt-2");
}

tsr_status tsr__words_add_digits(tsr__words *words, bool individual)
{
    return add_step(words, individual ? number : numbers, words->count > 0 ? NULL : "digits");
}

/* A piece starts at each "▁". */
static size_t after_space_sign(const tsr__letter *text, size_t at, size_t end, size_t *skip)
{
    (void)skip;
    if (!is_code(text, at, end, 0x2581))
        return 0;
    size_t length = 1;
    while (at + length < end && text[at + length].code != 0x2581)
        length++;
    return length;
}

tsr_status tsr__words_add_space_signs(tsr__words *words)
{
    return add_step(words, after_space_sign, "metaspace");
}
