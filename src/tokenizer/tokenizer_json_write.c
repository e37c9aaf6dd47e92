/* Writes tokenizer.json of byte-level BPE and of Gemma 4's tokenizer, and tokenizer_config.json, as
 * Hugging Face does; see tokenizer_json_read.c. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "tokenizer/tokenizer_write.h"
#include "tokenizer/word_expressions.h"
#include "json/json_write.h"
#include "json/text_check.h"

static const char format[] = "tokenizer.json";

/* How a text is searched for an added token: before or after it is normalised. */
typedef struct search {
    const tsr__added_token *token; /* NULL: texts are not searched for the token */
    bool normalized;
} search;

typedef struct printer {
    tsr__json_writer json;
    const tsr_tokenizer *t;
    const search *searches;         /* [vocabulary.count] */
    const char *const *expressions; /* [words.count] */
    const tsr__pair *merges;        /* [merges.count], in order */
    bool gemma4;                    /* tsr__tokenizer_is_gemma4 */
} printer;

static void print_spelling(printer *p, int32_t id)
{
    tsr__json_print_string(&p->json, tsr__token_spelling(&p->t->vocabulary, id));
}

static const char *word(bool flag)
{
    return flag ? "true" : "false";
}

static void print_added(printer *p)
{
    const tsr__vocabulary *v = &p->t->vocabulary;
    const char *separator = "";
    tsr__json_print(&p->json, "  \"added_tokens\": [");
    for (size_t i = 0; i < v->count; i++) {
        const tsr__token *token = &v->tokens[i];
        static const tsr__added_token none = {0};
        const tsr__added_token *how = p->searches[i].token ? p->searches[i].token : &none;
        if (!tsr__is_added(token))
            continue;
        tsr__json_print(&p->json, "%s\n    {\"id\": %zu, \"content\": ", separator, i);
        print_spelling(p, (int32_t)i);
        tsr__json_print(&p->json,
                        ", \"single_word\": %s, \"lstrip\": %s, \"rstrip\": %s, "
                        "\"normalized\": %s, \"special\": %s}",
                        word(how->single_word), word(how->strip_left), word(how->strip_right),
                        word(p->searches[i].normalized), word(tsr__is_control(token)));
        separator = ",";
    }
    tsr__json_print(&p->json, "\n  ],\n");
}

static void print_pre_tokenizer(printer *p)
{
    if (p->gemma4) {
        tsr__json_print(&p->json, "  \"normalizer\": {\"type\": \"Replace\", \"pattern\": "
                                  "{\"String\": \" \"}, \"content\": \"▁\"},\n");
        tsr__json_print(
            &p->json,
            "  \"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"String\": \" \"}, "
            "\"behavior\": \"MergedWithPrevious\", \"invert\": false},\n");
        return;
    }
    tsr__json_print(&p->json, "  \"normalizer\": %s,\n",
                    p->t->normalizer.count > 0 ? "{\"type\": \"NFC\"}" : "null");
    tsr__json_print(&p->json, "  \"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [");
    for (int i = 0; i < p->t->words.count; i++) {
        tsr__json_print(&p->json, "\n    {\"type\": \"Split\", \"pattern\": {\"Regex\": ");
        tsr__json_print_string(&p->json, p->expressions[i]);
        tsr__json_print(&p->json, "}, \"behavior\": \"Isolated\", \"invert\": false},");
    }
    tsr__json_print(&p->json, "\n    {\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
                              "\"trim_offsets\": true, \"use_regex\": false}]},\n");
}

/* Prints the elements of a template for one text: the ids before it, the text, whose name in the
 * template is `sequence`, and the ids after it. */
static void print_template(printer *p, const char *sequence, int type)
{
    const tsr_tokenizer *t = p->t;
    for (size_t i = 0; i <= t->before + t->after; i++) {
        if (i == t->before)
            tsr__json_print(&p->json, "%s{\"Sequence\": {\"id\": \"%s\", \"type_id\": %d}}",
                            i > 0 ? ", " : "", sequence, type);
        if (i == t->before + t->after)
            break;
        tsr__json_print(&p->json,
                        "%s{\"SpecialToken\": {\"id\": ", i > 0 || t->before == 0 ? ", " : "");
        print_spelling(p, t->around[i]);
        tsr__json_print(&p->json, ", \"type_id\": %d}}", type);
    }
}

static void print_post_processor(printer *p)
{
    const tsr_tokenizer *t = p->t;
    tsr__json_print(&p->json, "  \"post_processor\": ");
    if (t->before + t->after == 0) {
        tsr__json_print(&p->json, "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
                                  "\"trim_offsets\": false, \"use_regex\": false},\n");
        return;
    }
    tsr__json_print(&p->json, "{\"type\": \"TemplateProcessing\", \"single\": [");
    print_template(p, "A", 0);
    tsr__json_print(&p->json, "], \"pair\": [");
    print_template(p, "A", 0);
    tsr__json_print(&p->json, ", ");
    print_template(p, "B", 1);
    tsr__json_print(&p->json, "], \"special_tokens\": {");
    for (size_t i = 0; i < t->before + t->after; i++) {
        if (i > 0 && t->around[i] == t->around[0])
            break;
        tsr__json_print(&p->json, "%s", i > 0 ? ", " : "");
        print_spelling(p, t->around[i]);
        tsr__json_print(&p->json, ": {\"id\": ");
        print_spelling(p, t->around[i]);
        tsr__json_print(&p->json, ", \"ids\": [%d], \"tokens\": [", (int)t->around[i]);
        print_spelling(p, t->around[i]);
        tsr__json_print(&p->json, "]}");
    }
    tsr__json_print(&p->json, "}},\n");
}

/* Prints a merge as "left right". check_writable() makes sure that the tokens have no spaces. */
static void print_merge(printer *p, const tsr__pair *pair)
{
    char text[2 * TSR_TOKENIZER_MAX_TOKEN_BYTES + 2];
    snprintf(text, sizeof text, "%s %s", tsr__token_spelling(&p->t->vocabulary, pair->left),
             tsr__token_spelling(&p->t->vocabulary, pair->right));
    tsr__json_print_string(&p->json, text);
}

static void print_model(printer *p)
{
    const tsr_tokenizer *t = p->t;
    tsr__json_print(&p->json, "  \"model\": {\"type\": \"BPE\", \"dropout\": null, "
                              "\"unk_token\": ");
    if (t->unknown >= 0)
        print_spelling(p, t->unknown);
    else
        tsr__json_print(&p->json, "null");
    tsr__json_print(&p->json,
                    ", \"continuing_subword_prefix\": null, \"end_of_word_suffix\": null, "
                    "\"fuse_unk\": %s, \"byte_fallback\": %s, \"ignore_merges\": %s,\n"
                    "    \"vocab\": {",
                    word(t->fuse_unknown), word(p->gemma4), word(t->whole_words));
    for (size_t i = 0; i < t->vocabulary.count; i++) {
        tsr__json_print(&p->json, "%s\n      ", i > 0 ? "," : "");
        print_spelling(p, (int32_t)i);
        tsr__json_print(&p->json, ": %zu", i);
    }
    tsr__json_print(&p->json, "\n    },\n    \"merges\": [");
    for (size_t i = 0; i < t->merges.count; i++) {
        tsr__json_print(&p->json, "%s\n      ", i > 0 ? "," : "");
        print_merge(p, &p->merges[i]);
    }
    tsr__json_print(&p->json, "\n    ]}\n");
}

static void print_tokenizer(printer *p)
{
    tsr__json_print(&p->json, "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n"
                              "  \"padding\": null,\n");
    print_added(p);
    print_pre_tokenizer(p);
    print_post_processor(p);
    tsr__json_print(&p->json,
                    p->gemma4
                        ? "  \"decoder\": {\"type\": \"Sequence\", \"decoders\": [{\"type\": "
                          "\"Replace\", \"pattern\": {\"String\": \"▁\"}, \"content\": \" \"}, "
                          "{\"type\": \"ByteFallback\"}, {\"type\": \"Fuse\"}]},\n"
                        : "  \"decoder\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
                          "\"trim_offsets\": true, \"use_regex\": false},\n");
    print_model(p);
    tsr__json_print(&p->json, "}\n");
}

static void print_config(printer *p)
{
    const tsr_tokenizer *t = p->t;
    const struct {
        const char *key;
        int32_t id;
    } tokens[] = {{"bos_token", t->bos},
                  {"eos_token", t->eos},
                  {"pad_token", t->pad},
                  {"unk_token", t->unknown}};
    tsr__json_print(&p->json, "{\n  \"add_bos_token\": %s,\n  \"add_eos_token\": %s",
                    t->before > 0 ? "true" : "false", t->after > 0 ? "true" : "false");
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++) {
        if (tokens[i].id < 0)
            continue;
        tsr__json_print(&p->json, ",\n  \"%s\": ", tokens[i].key);
        print_spelling(p, tokens[i].id);
    }
    if (t->chat_template != NULL) {
        tsr__json_print(&p->json, ",\n  \"chat_template\": ");
        tsr__json_print_string(&p->json, t->chat_template);
    }
    tsr__json_print(&p->json,
                    ",\n  \"clean_up_tokenization_spaces\": false,\n"
                    "  \"tokenizer_class\": \"%s\"\n}\n",
                    t->kind == TSR_TOKENIZER_SPM ? "LlamaTokenizer" : "PreTrainedTokenizerFast");
}

/* Prints a document twice: first to compute its length, and then into new memory of this length. */
static tsr_status print_document(printer *p, void (*print)(printer *), char **out, size_t *size)
{
    p->json = (tsr__json_writer){0};
    print(p);
    char *text = tsr__calloc(p->json.length + 1, 1);
    if (text == NULL)
        return TSR_ERR_NO_MEMORY;
    p->json = (tsr__json_writer){.text = text};
    print(p);
    *out = text;
    *size = p->json.length;
    return TSR_OK;
}

/* Sets searches[vocabulary.count] from the added tokens. Fails if the list "added_tokens" of the
 * file cannot describe a search: it has one entry for each token, and texts are searched for every
 * token in it. */
static tsr_status find_searches(const tsr_tokenizer *t, search *searches)
{
    for (int stage = 0; stage < 2; stage++)
        for (size_t i = 0; i < t->added[stage].count; i++) {
            const tsr__added_token *token = &t->added[stage].tokens[i];
            search *s = &searches[token->id];
            if (s->token || token->control != tsr__is_control(&t->vocabulary.tokens[token->id]))
                return tsr__tokenizer_cannot(format, "that an added token is searched in two ways");
            *s = (search){.token = token, .normalized = stage == 1};
        }
    for (size_t i = 0; i < t->vocabulary.count; i++) {
        const tsr__token *token = &t->vocabulary.tokens[i];
        if (tsr__is_added(token) && !searches[i].token && token->spelling_size > 0)
            return tsr__tokenizer_cannot(format, "which of two added tokens is searched, whose "
                                                 "normalised texts are the same");
    }
    return TSR_OK;
}

static bool has_space(const tsr_tokenizer *t, int32_t id)
{
    return strchr(tsr__token_spelling(&t->vocabulary, id), ' ') != NULL;
}

static tsr_status check_writable(const tsr_tokenizer *t)
{
    char shown[TSR__SPELLING_TEXT];
    if (t->kind == TSR_TOKENIZER_SPM)
        return tsr__tokenizer_cannot(format, "the scores of a SentencePiece-style vocabulary");
    const bool gemma4 = tsr__tokenizer_is_gemma4(t);
    if (t->kind == TSR_TOKENIZER_BPE && !gemma4)
        return tsr__fail(TSR_ERR_UNSUPPORTED, "tokenizer: BPE over characters cannot be written");
    for (size_t i = 0; i < t->normalizer.count && !gemma4; i++)
        if (t->normalizer.steps[i].kind != TSR__NFC || i > 0)
            return tsr__tokenizer_cannot(format, "how the text is normalised");
    if (t->late.count > 0)
        return tsr__tokenizer_cannot(format, "that words start with a space");
    if (t->strips_start)
        return tsr__tokenizer_cannot(format, "that decoding removes a space at the start");
    for (size_t i = 0; i < t->vocabulary.count; i++) {
        const char *spelling = tsr__token_spelling(&t->vocabulary, (int32_t)i);
        const size_t length = t->vocabulary.tokens[i].spelling_size;
        if (memchr(spelling, '\0', length) != NULL || tsr__text_problem(spelling, length) != NULL)
            return tsr__fail(TSR_ERR_UNSUPPORTED,
                             "tokenizer: tokenizer.json cannot have token %zu, %s, which is not "
                             "UTF-8",
                             i, tsr__spelling_text(spelling, length, shown));
        if (t->vocabulary.tokens[i].type == TSR__TOKEN_BYTE && !gemma4)
            return tsr__tokenizer_cannot(format, "that tokens are spelled <0x00> to <0xFF>, beside "
                                                 "the byte-level alphabet (byte_fallback)");
    }
    for (size_t i = 0; i < t->merges.count; i++)
        if (has_space(t, t->merges.pairs[i].left) || has_space(t, t->merges.pairs[i].right))
            return tsr__tokenizer_cannot(format, "a merge of tokens with spaces");
    return tsr__tokenizer_check_around(t);
}

tsr_status tsr__tokenizer_save_config(const tsr_tokenizer *t, char **out, size_t *size)
{
    printer p = {.t = t};
    return print_document(&p, print_config, out, size);
}

static tsr_status print_files(printer *p, search *searches, char **out, size_t *size)
{
    const char *expressions[TSR__MAX_WORD_STEPS];
    tsr__pair *pairs = NULL;
    TSR__TRY(find_searches(p->t, searches));
    TSR__TRY(tsr__word_splitter_find_expressions(&p->t->words, expressions));
    TSR__TRY(tsr__merges_in_order(&p->t->merges, &pairs));
    p->searches = searches;
    p->expressions = expressions;
    p->merges = pairs;
    const tsr_status status = print_document(p, print_tokenizer, out, size);
    tsr__free(pairs);
    return status;
}

tsr_status tsr__tokenizer_save_json(const tsr_tokenizer *t, char **out, size_t *size)
{
    printer p = {.t = t, .gemma4 = tsr__tokenizer_is_gemma4(t)};
    TSR__TRY(check_writable(t));
    search *searches = tsr__calloc(t->vocabulary.count, sizeof *searches);
    if (searches == NULL)
        return TSR_ERR_NO_MEMORY;
    const tsr_status status = print_files(&p, searches, out, size);
    tsr__free(searches);
    return status;
}
