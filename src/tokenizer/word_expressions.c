/* The names and the regular expressions of the known matchers, which are those of llama.cpp
 * (src/llama-vocab.cpp) and of the models' tokenizer.json. */
#include "tokenizer/word_expressions.h"

#include <stdio.h>
#include <string.h>

#include "tokenizer/word_matchers.h"

/* The names that GGUF files use for ways to cut texts into words, and the steps of each. Several
 * names may stand for the same steps. */
typedef struct named {
    const char *names; /* one or more, separated by spaces */
    bool whole_words, adds_bos;
    tsr__matcher steps[TSR__MAX_WORD_STEPS];
} named;

static const named all_named[] = {
    {"llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2",
     true,
     true,
     {tsr__match_llama3}},
    {"dbrx smaug-bpe chatglm-bpe glm4", false, false, {tsr__match_llama3}},
    {"gpt-2 phi-2 jina-es jina-de gigachat jina-v1-en jina-v2-es jina-v2-de jina-v2-code "
     "roberta-bpe mpt olmo jais trillion granite-docling a.x-4.0 mellum exaone4",
     false,
     false,
     {tsr__match_gpt2}},
    {"starcoder refact command-r smollm codeshell exaone minerva-7b",
     false,
     false,
     {tsr__match_number, tsr__match_gpt2}},
    {"qwen2 deepseek-r1-qwen stablelm2 megrez hunyuan grok-2 solar-open kormo",
     false,
     false,
     {tsr__match_qwen2}},
    {"qwen35", false, false, {tsr__match_qwen35}},
    {"deepseek-llm",
     false,
     false,
     {tsr__match_newline, tsr__match_cased_letters, tsr__match_wide_punctuation,
      tsr__match_last_spaces, tsr__match_cjk, tsr__match_numbers}},
    {"deepseek-coder",
     false,
     false,
     {tsr__match_newline, tsr__match_letters, tsr__match_punctuation, tsr__match_cjk,
      tsr__match_number}},
    {"deepseek-v3 hunyuan-dense",
     false,
     false,
     {tsr__match_numbers_up_to_3, tsr__match_cjk_and_kana, tsr__match_deepseek3}},
    {"falcon", false, false, {tsr__match_falcon_signs, tsr__match_gpt2, tsr__match_three_digits}},
    {"default",
     false,
     false,
     {tsr__match_default_signs, tsr__match_gpt2, tsr__match_numbers, tsr__match_three_digits}},
    {"poro-chat bloom gpt3-finnish", false, false, {tsr__match_bloom}},
    {"viking", false, false, {tsr__match_bloom, tsr__match_number}},
    {"tekken", true, true, {tsr__match_tekken}},
    {"gpt-4o llama4 minimax-m2", false, false, {tsr__match_gpt4o}},
};

/* Returns whether `list`, words separated by spaces, has the word `name`. */
static bool has_name(const char *list, const char *name)
{
    size_t length = strlen(name);
    if (length == 0 || strchr(name, ' ') != NULL)
        return false;
    for (const char *offset = list; (offset = strstr(offset, name)) != NULL; offset++)
        if ((offset == list || offset[-1] == ' ') &&
            (offset[length] == '\0' || offset[length] == ' '))
            return true;
    return false;
}

tsr_status tsr__word_splitter_by_name(const char *name, tsr__word_splitter *splitter,
                                      bool *whole_words, bool *adds_bos)
{
    for (size_t i = 0; i < sizeof all_named / sizeof *all_named; i++) {
        const named *row = &all_named[i];
        if (!has_name(row->names, name))
            continue;
        splitter->count = 0;
        while (splitter->count < TSR__MAX_WORD_STEPS && row->steps[splitter->count] != NULL) {
            splitter->steps[splitter->count] = row->steps[splitter->count];
            splitter->count++;
        }
        tsr__word_splitter_set_name(splitter, name);
        *whole_words = row->whole_words;
        *adds_bos = row->adds_bos;
        return TSR_OK;
    }
    return tsr__fail(TSR_ERR_UNSUPPORTED,
                     "tokenizer: the pre-tokenizer '%.80s' is not known, so texts cannot be cut "
                     "into words",
                     name);
}

/* The regular expressions in files named tokenizer.json. The matches of each of the first COVERING
 * expressions leave out no character of any text. */
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
    const char *expression,
        *name; /* the name is NULL if models of several names use this expression */
    tsr__matcher matcher;
} all_expressions[] = {
    {CONTRACTIONS
     "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" SPACES,
     "llama-bpe", tsr__match_llama3_any_case},
    {CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" SPACES,
     "qwen2", tsr__match_qwen2_any_case},
    {CONTRACTIONS
     "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" SPACES,
     "qwen35", tsr__match_qwen35_any_case},
    {"'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+", "gpt-2",
     tsr__match_gpt2},
    {FIRST "*" SECOND "+" CONTRACTIONS "?|" FIRST "+" SECOND "*" CONTRACTIONS
           "?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" SPACES,
     "gpt-4o", tsr__match_gpt4o_by_class},
    {FIRST "*" SECOND "+|" FIRST "+" SECOND "*|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" SPACES,
     "tekken", tsr__match_tekken_by_class},
    {"[!\"#$%&'()*+,\\-./"
     ":;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|"
     " ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
     "deepseek-v3", tsr__match_deepseek3},
    {"[\\r\\n]", "deepseek", tsr__match_newline},
    {"\\s?\\p{L}+", "deepseek-coder", tsr__match_letters},
    {"\\s?\\p{P}+", "deepseek-coder", tsr__match_punctuation},
    {CASED_LETTERS, "deepseek-llm", tsr__match_cased_letters},
    {"\\s?[!-/:-~！-／：-～‘-‟　-。]+", "deepseek-llm", tsr__match_wide_punctuation},
    {"\\s+$", "deepseek-llm", tsr__match_last_spaces},
    {"[一-龥ࠀ-一가-퟿]+", NULL, tsr__match_cjk},
    {"[一-龥぀-ゟ゠-ヿ]+", "deepseek-v3", tsr__match_cjk_and_kana},
    {"\\p{N}{1,3}", "deepseek-v3", tsr__match_numbers_up_to_3},
    {"\\p{N}+", NULL, tsr__match_numbers},
    {"\\p{N}", NULL, tsr__match_number},
    {"[0-9][0-9][0-9]", NULL, tsr__match_three_digits},
    {" ?[^(\\s|[.,!?…。，、।۔،])]+", "bloom", tsr__match_bloom},
};

/* Appends a step that cuts texts into words. If `name` is not NULL, it becomes the splitter's
 * name. */
static tsr_status add_step(tsr__word_splitter *splitter, tsr__matcher matcher, const char *name)
{
    TSR__REQUIRE(splitter->count < TSR__MAX_WORD_STEPS,
                 "tokenizer: more than %d steps cut a text into words", TSR__MAX_WORD_STEPS);
    splitter->steps[splitter->count++] = matcher;
    if (name != NULL)
        tsr__word_splitter_set_name(splitter, name);
    return TSR_OK;
}

/* Returns whether an expression is the same as `known`, an expression of the table. The table
 * writes line breaks as \\r and \\n; a file may contain the line breaks themselves. */
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

tsr_status tsr__word_splitter_add_expression(tsr__word_splitter *splitter, const char *expression,
                                             bool must_cover)
{
    char shown[TSR__SPELLING_TEXT];
    for (size_t i = 0; i < sizeof all_expressions / sizeof *all_expressions; i++)
        if (is_expression(expression, all_expressions[i].expression) &&
            (!must_cover || i < COVERING))
            return add_step(splitter, all_expressions[i].matcher, all_expressions[i].name);
    return tsr__fail(TSR_ERR_UNSUPPORTED,
                     "tokenizer: the regular expression %s is not known, so texts cannot be cut "
                     "into words",
                     tsr__spelling_text(expression, strlen(expression), shown));
}

/* The steps of tokenizer.json that differ from those that GGUF files name. */
static const struct {
    tsr__matcher in_json, in_gguf;
    /* Letters have Unicode's classes in tokenizer.json, so that words outside ASCII are cut
     * differently. If false, the two steps differ only in whether U+017F, the long s, counts as an
     * s after an apostrophe. */
    bool by_class;
} step_pairs[] = {
    {tsr__match_llama3_any_case, tsr__match_llama3, false},
    {tsr__match_qwen2_any_case, tsr__match_qwen2, false},
    {tsr__match_qwen35_any_case, tsr__match_qwen35, false},
    {tsr__match_gpt4o_by_class, tsr__match_gpt4o, true},
    {tsr__match_tekken_by_class, tsr__match_tekken, true},
};

/* Returns the step that GGUF files use where tokenizer.json uses `matcher`. */
static tsr__matcher named_step(tsr__matcher matcher)
{
    for (size_t i = 0; i < sizeof step_pairs / sizeof *step_pairs; i++)
        if (step_pairs[i].in_json == matcher)
            return step_pairs[i].in_gguf;
    return matcher;
}

bool tsr__word_splitter_changes(const tsr__word_splitter *splitter, bool to_gguf)
{
    bool changes = false;
    for (int step = 0; step < splitter->count; step++)
        for (size_t i = 0; i < sizeof step_pairs / sizeof *step_pairs; i++)
            changes = changes || (step_pairs[i].by_class &&
                                  splitter->steps[step] ==
                                      (to_gguf ? step_pairs[i].in_json : step_pairs[i].in_gguf));
    return changes;
}

tsr_status tsr__word_splitter_find_name(const tsr__word_splitter *splitter, bool whole_words,
                                        char out[TSR__WORDS_NAME])
{
    for (size_t i = 0; i < sizeof all_named / sizeof *all_named; i++) {
        const named *row = &all_named[i];
        int step = 0;
        while (step < splitter->count && row->steps[step] == named_step(splitter->steps[step]))
            step++;
        if (step < splitter->count || row->steps[step] != NULL || row->whole_words != whole_words)
            continue;
        const char *name = has_name(row->names, splitter->name) ? splitter->name : row->names;
        snprintf(out, TSR__WORDS_NAME, "%.*s", (int)strcspn(name, " "), name);
        return TSR_OK;
    }
    return tsr__fail(TSR_ERR_UNSUPPORTED,
                     "tokenizer: GGUF files cannot say how words are cut (%s%s)",
                     splitter->count > 0 ? splitter->name : "not at all",
                     whole_words ? ", with ignore_merges" : "");
}

tsr_status tsr__word_splitter_find_expressions(const tsr__word_splitter *splitter,
                                               const char *out[TSR__MAX_WORD_STEPS])
{
    for (int step = 0; step < splitter->count; step++) {
        out[step] = NULL;
        for (size_t i = 0; i < sizeof all_expressions / sizeof *all_expressions; i++)
            if (named_step(all_expressions[i].matcher) == named_step(splitter->steps[step]))
                out[step] = all_expressions[i].expression;
        if (out[step] == NULL)
            return tsr__fail(TSR_ERR_UNSUPPORTED,
                             "tokenizer: the words of '%s' have no regular expression for "
                             "tokenizer.json",
                             splitter->name);
    }
    return TSR_OK;
}

tsr_status tsr__word_splitter_add_gpt2(tsr__word_splitter *splitter)
{
    /* In StarCoder's tokenizer, another step comes before, which cuts off digits. */
    return add_step(splitter, tsr__match_gpt2, splitter->count > 0 ? "starcoder" : "gpt-2");
}

tsr_status tsr__word_splitter_add_digits(tsr__word_splitter *splitter, bool individual)
{
    return add_step(splitter, individual ? tsr__match_number : tsr__match_numbers,
                    splitter->count > 0 ? NULL : "digits");
}

tsr_status tsr__word_splitter_add_space_signs(tsr__word_splitter *splitter)
{
    return add_step(splitter, tsr__match_after_space_sign, "metaspace");
}
