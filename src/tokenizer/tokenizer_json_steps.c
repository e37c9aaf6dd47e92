/* The members of tokenizer.json other than "model": normaliser, pre-tokenizer, post-processor,
 * decoder. If one of them has a type that is not known, the file is refused with an error that
 * names the type: without it, the ids would be wrong. */
#include <inttypes.h>
#include <string.h>

#include "tokenizer/tokenizer_json.h"
#include "tokenizer/word_expressions.h"

#define MAX_DEPTH 4 /* the maximum depth of "Sequence" elements inside each other */
#define TYPE_TEXT 64

static const char space_sign[] = "▁";

static tsr_status unsupported(const tsr__json *json, const char *what, const char *name)
{
    char shown[TSR__SPELLING_TEXT];
    return tsr__fail(TSR_ERR_UNSUPPORTED, "tokenizer: offset %zu: the %s %s is not supported",
                     json->at, what, tsr__spelling_text(name, strlen(name), shown));
}

tsr_status tsr__json_type(tsr__json *json, size_t size, char *type)
{
    char key[TSR__JSON_TEXT];
    bool more = false;
    (void)tsr__json_peek(json);
    size_t start = json->at;
    TSR__TRY(tsr__json_enter(json, '{'));
    for (;;) {
        TSR__TRY(tsr__json_member(json, key, &more));
        if (!more)
            return tsr__json_fail(json, start, "an object without a \"type\"");
        if (strcmp(key, "type") == 0)
            break;
        TSR__TRY(tsr__json_skip(json));
    }
    TSR__TRY(tsr__json_string(json, size, type));
    json->at = start;
    return TSR_OK;
}

/* A member of an object: its name, and what it is read into. */
typedef struct member {
    const char *name;
    char *text; /* for a string: the buffer that it is read into, of TSR__JSON_TEXT bytes */
    bool *flag;
    size_t *place; /* set to where the value starts; the value is skipped */
} member;

/* Reads those members of an object that `members` lists; the list ends with a member without a
 * name. Skips all other members, and members whose value is null. */
static tsr_status read_members(tsr__json *json, const member *members)
{
    char key[TSR__JSON_TEXT];
    bool more = false;
    TSR__TRY(tsr__json_enter(json, '{'));
    for (;;) {
        TSR__TRY(tsr__json_member(json, key, &more));
        if (!more)
            return TSR_OK;
        const member *m = members;
        while (m->name != NULL && strcmp(m->name, key) != 0)
            m++;
        if (m->name != NULL && m->place != NULL)
            *m->place = json->at;
        if (m->name == NULL || m->place != NULL || tsr__json_peek(json) == 'n')
            TSR__TRY(tsr__json_skip(json));
        else
            TSR__TRY(m->flag != NULL ? tsr__json_bool(json, m->flag)
                                     : tsr__json_string(json, TSR__JSON_TEXT, m->text));
    }
}

/* Calls `read` for each element of the array called `name` of the object that starts here. */
typedef tsr_status (*read_fn)(tsr__json *json, void *to, int depth);
static tsr_status read_sequence(tsr__json *json, const char *name, read_fn read, void *to,
                                int depth)
{
    size_t place = 0, start = json->at;
    bool more = false;
    if (depth == MAX_DEPTH)
        return tsr__json_fail(json, start, "sequences nested more than %d deep", MAX_DEPTH);
    TSR__TRY(read_members(json, (const member[]){{name, .place = &place}, {0}}));
    size_t end = json->at;
    if (place == 0)
        return tsr__json_fail(json, start, "a sequence without \"%s\"", name);
    json->at = place;
    TSR__TRY(tsr__json_enter(json, '['));
    for (;;) {
        TSR__TRY(tsr__json_element(json, &more));
        if (!more)
            break;
        TSR__TRY(read(json, to, depth + 1));
    }
    json->at = end;
    return TSR_OK;
}

/* Normalisers ---------------------------------------------------------------------------------- */

/* Reads {"String": "…"} or {"Regex": "…"}. */
static tsr_status read_pattern(tsr__json *json, size_t place, char text[TSR__JSON_TEXT],
                               bool *is_regex)
{
    size_t string = 0, regex = 0, end = json->at;
    if (place == 0)
        return tsr__json_fail(json, json->at, "an object without \"pattern\"");
    json->at = place;
    TSR__TRY(read_members(
        json, (const member[]){{"String", .place = &string}, {"Regex", .place = &regex}, {0}}));
    if ((string > 0) == (regex > 0))
        return tsr__json_fail(json, place, "a pattern that is neither a String nor a Regex");
    json->at = string > 0 ? string : regex;
    TSR__TRY(tsr__json_string(json, TSR__JSON_TEXT, text));
    json->at = end;
    *is_regex = regex > 0;
    return TSR_OK;
}

static tsr_status read_replace(tsr__json *json, tsr__normalizer *normalizer)
{
    char from[TSR__JSON_TEXT] = "", to[TSR__JSON_TEXT] = "";
    size_t pattern = 0, start = json->at;
    bool is_regex = false;
    TSR__TRY(read_members(
        json, (const member[]){{"pattern", .place = &pattern}, {"content", .text = to}, {0}}));
    TSR__TRY(read_pattern(json, pattern, from, &is_regex));
    if (is_regex)
        return unsupported(json, "normaliser Replace of the regular expression", from);
    if (from[0] == '\0')
        return tsr__json_fail(json, start, "a normaliser that replaces nothing");
    return tsr__normalizer_add(normalizer, TSR__REPLACE, from, strlen(from), to, strlen(to));
}

static tsr_status read_normalizer(tsr__json *json, void *to, int depth)
{
    static const char *const forms[] = {"NFC", "NFD", "NFKC", "NFKD", NULL};
    char type[TYPE_TEXT], text[TSR__JSON_TEXT] = "";
    TSR__TRY(tsr__json_type(json, sizeof type, type));
    if (strcmp(type, "Sequence") == 0)
        return read_sequence(json, "normalizers", read_normalizer, to, depth);
    if (strcmp(type, "Replace") == 0)
        return read_replace(json, to);
    if (strcmp(type, "Prepend") == 0) {
        TSR__TRY(read_members(json, (const member[]){{"prepend", .text = text}, {0}}));
        return tsr__normalizer_add(to, TSR__PREPEND, "", 0, text, strlen(text));
    }
    int form = tsr__json_find(forms, type);
    if (form < 0)
        return unsupported(json, "normaliser", type);
    TSR__TRY(tsr__json_skip(json));
    return tsr__normalizer_add(to, (tsr__normal_kind)((int)TSR__NFC + form), "", 0, "", 0);
}

tsr_status tsr__json_normalizer(tsr__json *json, tsr_tokenizer *tokenizer)
{
    return read_normalizer(json, &tokenizer->normalizer, 0);
}

/* Pre-tokenizers ------------------------------------------------------------------------------- */

typedef struct pre_tokenizer {
    tsr_tokenizer *tokenizer;
    bool byte_level;
} pre_tokenizer;

/* Returns whether normalised texts cannot contain the string: the last step of the normaliser
 * replaces it by a text without it. */
static bool is_replaced(const tsr__normalizer *normalizer, const char *string)
{
    if (normalizer->count == 0)
        return false;
    const tsr__normal_step *last = &normalizer->steps[normalizer->count - 1];
    const char *strings = normalizer->strings.data;
    return last->kind == TSR__REPLACE && strcmp(strings + last->from, string) == 0 &&
           strstr(strings + last->to, string) == NULL;
}

static tsr_status read_split(tsr__json *json, tsr_tokenizer *tokenizer)
{
    char expression[TSR__JSON_TEXT] = "", behaviour[TSR__JSON_TEXT] = "";
    size_t pattern = 0;
    bool is_regex = false, invert = false;
    TSR__TRY(read_members(json, (const member[]){{"pattern", .place = &pattern},
                                                 {"behavior", .text = behaviour},
                                                 {"invert", .flag = &invert},
                                                 {0}}));
    TSR__TRY(read_pattern(json, pattern, expression, &is_regex));
    /* Gemma's tokenizers replace spaces by "▁" and then split at spaces. */
    if (!is_regex && is_replaced(&tokenizer->normalizer, expression))
        return TSR_OK;
    if (!is_regex)
        return unsupported(json, "pre-tokenizer Split at the string", expression);
    /* Inverted "Removed" removes the text between the matches. If the matches leave nothing out,
     * this is the same as "Isolated". */
    bool keeps_matches = invert && strcmp(behaviour, "Removed") == 0;
    if (!keeps_matches && (invert || strcmp(behaviour, "Isolated") != 0))
        return unsupported(json, "pre-tokenizer Split with the behaviour", behaviour);
    return tsr__word_splitter_add_expression(&tokenizer->words, expression, keeps_matches);
}

static tsr_status read_byte_level(tsr__json *json, pre_tokenizer *to)
{
    tsr__word_splitter *words = &to->tokenizer->words;
    bool adds_space = true, cuts = true;
    size_t start = json->at;
    TSR__TRY(read_members(json, (const member[]){{"add_prefix_space", .flag = &adds_space},
                                                 {"use_regex", .flag = &cuts},
                                                 {0}}));
    to->byte_level = true;
    if (adds_space && words->count > 0)
        return tsr__fail(
            TSR_ERR_UNSUPPORTED,
            "tokenizer: offset %zu: add_prefix_space after other pre-tokenizers is not "
            "supported",
            start);
    if (adds_space)
        TSR__TRY(tsr__normalizer_add(&to->tokenizer->late, TSR__PREPEND_NEW, "", 0, " ", 1));
    return cuts ? tsr__word_splitter_add_gpt2(words) : TSR_OK;
}

static tsr_status read_metaspace(tsr__json *json, pre_tokenizer *to)
{
    char sign[TSR__JSON_TEXT] = "▁", scheme[TSR__JSON_TEXT] = "";
    bool adds_space = true, cuts = true;
    TSR__TRY(read_members(json, (const member[]){{"replacement", .text = sign},
                                                 {"prepend_scheme", .text = scheme},
                                                 {"add_prefix_space", .flag = &adds_space},
                                                 {"split", .flag = &cuts},
                                                 {0}}));
    if (strcmp(sign, space_sign) != 0)
        return unsupported(json, "pre-tokenizer Metaspace with", sign);
    if (scheme[0] == '\0')
        strcpy(scheme, adds_space ? "always" : "never");
    bool first = strcmp(scheme, "first") == 0, never = strcmp(scheme, "never") == 0;
    if (!first && !never && strcmp(scheme, "always") != 0)
        return unsupported(json, "pre-tokenizer Metaspace with the scheme", scheme);
    TSR__TRY(tsr__normalizer_add(&to->tokenizer->late, TSR__REPLACE, " ", 1, space_sign,
                                 strlen(space_sign)));
    if (!never)
        TSR__TRY(tsr__normalizer_add(&to->tokenizer->late,
                                     first ? TSR__PREPEND_FIRST_NEW : TSR__PREPEND_NEW, "", 0,
                                     space_sign, strlen(space_sign)));
    return cuts ? tsr__word_splitter_add_space_signs(&to->tokenizer->words) : TSR_OK;
}

static tsr_status read_pre_tokenizer(tsr__json *json, void *pointer, int depth)
{
    pre_tokenizer *to = pointer;
    char type[TYPE_TEXT];
    bool individual = false;
    size_t start = json->at;
    TSR__TRY(tsr__json_type(json, sizeof type, type));
    if (strcmp(type, "Sequence") == 0)
        return read_sequence(json, "pretokenizers", read_pre_tokenizer, to, depth);
    if (to->byte_level || to->tokenizer->late.count > 0)
        return tsr__fail(
            TSR_ERR_UNSUPPORTED,
            "tokenizer: offset %zu: a pre-tokenizer after ByteLevel or Metaspace is not "
            "supported",
            start);
    if (strcmp(type, "ByteLevel") == 0)
        return read_byte_level(json, to);
    if (strcmp(type, "Metaspace") == 0)
        return read_metaspace(json, to);
    if (strcmp(type, "Split") == 0)
        return read_split(json, to->tokenizer);
    if (strcmp(type, "Digits") != 0)
        return unsupported(json, "pre-tokenizer", type);
    TSR__TRY(read_members(json, (const member[]){{"individual_digits", .flag = &individual}, {0}}));
    return tsr__word_splitter_add_digits(&to->tokenizer->words, individual);
}

tsr_status tsr__json_pre_tokenizer(tsr__json *json, tsr_tokenizer *tokenizer, bool *byte_level)
{
    pre_tokenizer to = {.tokenizer = tokenizer};
    TSR__TRY(read_pre_tokenizer(json, &to, 0));
    *byte_level = to.byte_level;
    return TSR_OK;
}

/* Post-processors ------------------------------------------------------------------------------ */

/* Adds the ids of the special token `name` of a template: special_tokens[name].ids. `place` is
 * where the value of special_tokens starts, or 0. */
static tsr_status add_special(tsr__json *json, size_t place, const char *name, bool after,
                              tsr_tokenizer *tokenizer)
{
    char shown[TSR__SPELLING_TEXT];
    size_t token = 0, ids = 0;
    bool more = false;
    json->at = place;
    if (place > 0)
        TSR__TRY(read_members(json, (const member[]){{name, .place = &token}, {0}}));
    if (token > 0) {
        json->at = token;
        TSR__TRY(read_members(json, (const member[]){{"ids", .place = &ids}, {0}}));
    }
    if (ids == 0)
        return tsr__json_fail(json, place, "the template has no ids for its special token %s",
                              tsr__spelling_text(name, strlen(name), shown));
    json->at = ids;
    const size_t count = tokenizer->before + tokenizer->after;
    TSR__TRY(tsr__json_enter(json, '['));
    for (;;) {
        uint64_t id = 0;
        TSR__TRY(tsr__json_element(json, &more));
        if (!more && tokenizer->before + tokenizer->after > count)
            return TSR_OK;
        if (!more)
            return tsr__json_fail(json, ids, "the template has no ids for its special token %s",
                                  tsr__spelling_text(name, strlen(name), shown));
        size_t offset = json->at;
        TSR__TRY(tsr__json_integer(json, &id));
        if (id >= tokenizer->vocabulary.count)
            return tsr__json_fail(json, offset, "id %" PRIu64 " of a template; ids are 0 to %zu",
                                  id, tokenizer->vocabulary.count - 1);
        TSR__TRY(tsr__tokenizer_add_around(tokenizer, (int32_t)id, after));
    }
}

static tsr_status read_template(tsr__json *json, tsr_tokenizer *tokenizer)
{
    char name[TSR__JSON_TEXT];
    size_t single = 0, tokens = 0, start = json->at;
    bool more = false, after = false;
    TSR__TRY(read_members(
        json,
        (const member[]){{"single", .place = &single}, {"special_tokens", .place = &tokens}, {0}}));
    size_t end = json->at;
    if (single == 0)
        return tsr__json_fail(json, start, "a template without \"single\"");
    json->at = single;
    TSR__TRY(tsr__json_enter(json, '['));
    for (;;) {
        size_t special = 0, sequence = 0;
        TSR__TRY(tsr__json_element(json, &more));
        if (!more)
            break;
        size_t offset = json->at;
        TSR__TRY(read_members(json, (const member[]){{"SpecialToken", .place = &special},
                                                     {"Sequence", .place = &sequence},
                                                     {0}}));
        size_t next = json->at;
        if ((special > 0) == (sequence > 0) || (sequence > 0 && after))
            return tsr__json_fail(json, offset,
                                  "a template that is not special tokens around one "
                                  "sequence");
        after = after || sequence > 0;
        if (special > 0) {
            json->at = special;
            name[0] = '\0';
            TSR__TRY(read_members(json, (const member[]){{"id", .text = name}, {0}}));
            TSR__TRY(add_special(json, tokens, name, after, tokenizer));
        }
        json->at = next;
    }
    json->at = end;
    return TSR_OK;
}

/* Reads a value such as ["<s>", 0] of RobertaProcessing or BertProcessing, which put "cls" before
 * and "sep" after the text. */
static tsr_status read_pair(tsr__json *json, size_t place, bool after, tsr_tokenizer *tokenizer)
{
    char name[TSR__JSON_TEXT];
    uint64_t id = 0;
    bool more = false;
    json->at = place;
    TSR__TRY(tsr__json_enter(json, '['));
    TSR__TRY(tsr__json_element(json, &more));
    TSR__TRY(tsr__json_string(json, sizeof name, name));
    TSR__TRY(tsr__json_element(json, &more));
    TSR__TRY(tsr__json_integer(json, &id));
    if (id >= tokenizer->vocabulary.count)
        return tsr__json_fail(json, place,
                              "id %" PRIu64 " is not in the vocabulary; ids are 0 to "
                              "%zu",
                              id, tokenizer->vocabulary.count - 1);
    return tsr__tokenizer_add_around(tokenizer, (int32_t)id, after);
}

static tsr_status read_post_processor(tsr__json *json, void *pointer, int depth)
{
    char type[TYPE_TEXT];
    size_t cls = 0, sep = 0;
    TSR__TRY(tsr__json_type(json, sizeof type, type));
    if (strcmp(type, "Sequence") == 0)
        return read_sequence(json, "processors", read_post_processor, pointer, depth);
    if (strcmp(type, "ByteLevel") == 0) /* changes only offsets in the text, not ids */
        return tsr__json_skip(json);
    bool is_pair = strcmp(type, "RobertaProcessing") == 0 || strcmp(type, "BertProcessing") == 0;
    if (!is_pair && strcmp(type, "TemplateProcessing") != 0)
        return unsupported(json, "post-processor", type);
    const tsr_tokenizer *tokenizer = pointer;
    if (tokenizer->before + tokenizer->after > 0)
        return tsr__json_fail(json, json->at, "two post-processors that add tokens");
    if (!is_pair)
        return read_template(json, pointer);
    size_t start = json->at;
    TSR__TRY(
        read_members(json, (const member[]){{"cls", .place = &cls}, {"sep", .place = &sep}, {0}}));
    size_t end = json->at;
    if (cls == 0 || sep == 0)
        return tsr__json_fail(json, start, "a post-processor without \"cls\" and \"sep\"");
    TSR__TRY(read_pair(json, cls, false, pointer));
    TSR__TRY(read_pair(json, sep, true, pointer));
    json->at = end;
    return TSR_OK;
}

tsr_status tsr__json_post_processor(tsr__json *json, tsr_tokenizer *tokenizer)
{
    return read_post_processor(json, tokenizer, 0);
}

/* Decoders ------------------------------------------------------------------------------------- */

static tsr_status read_decoder(tsr__json *json, void *pointer, int depth)
{
    tsr__json_decoding *to = pointer;
    char type[TYPE_TEXT], text[TSR__JSON_TEXT] = "", scheme[TSR__JSON_TEXT] = "";
    size_t pattern = 0;
    bool is_regex = false, adds_space = true;
    uint64_t counts[2] = {0, 0};
    size_t places[2] = {0, 0};
    TSR__TRY(tsr__json_type(json, sizeof type, type));
    if (strcmp(type, "Sequence") == 0)
        return read_sequence(json, "decoders", read_decoder, to, depth);
    to->byte_level = to->byte_level || strcmp(type, "ByteLevel") == 0;
    if (strcmp(type, "ByteLevel") == 0 || strcmp(type, "ByteFallback") == 0 ||
        strcmp(type, "Fuse") == 0)
        return tsr__json_skip(json);
    if (strcmp(type, "Metaspace") == 0) {
        TSR__TRY(read_members(json, (const member[]){{"replacement", .text = text},
                                                     {"prepend_scheme", .text = scheme},
                                                     {"add_prefix_space", .flag = &adds_space},
                                                     {0}}));
        if (strcmp(text, space_sign) != 0)
            return unsupported(json, "decoder Metaspace with", text);
        to->spells_spaces = true;
        to->strips_start = scheme[0] != '\0' ? strcmp(scheme, "never") != 0 : adds_space;
        return TSR_OK;
    }
    if (strcmp(type, "Replace") == 0) {
        TSR__TRY(read_members(
            json,
            (const member[]){{"pattern", .place = &pattern}, {"content", .text = scheme}, {0}}));
        TSR__TRY(read_pattern(json, pattern, text, &is_regex));
        if (is_regex || strcmp(text, space_sign) != 0 || strcmp(scheme, " ") != 0)
            return unsupported(json, "decoder Replace of", text);
        to->spells_spaces = true;
        return TSR_OK;
    }
    if (strcmp(type, "Strip") != 0)
        return unsupported(json, "decoder", type);
    TSR__TRY(read_members(json, (const member[]){{"content", .text = text},
                                                 {"start", .place = &places[0]},
                                                 {"stop", .place = &places[1]},
                                                 {0}}));
    size_t end = json->at;
    for (int i = 0; i < 2; i++)
        if (places[i] > 0) {
            json->at = places[i];
            TSR__TRY(tsr__json_integer(json, &counts[i]));
        }
    json->at = end;
    if (strcmp(text, " ") != 0 || counts[0] > 1 || counts[1] != 0)
        return unsupported(json, "decoder Strip of", text);
    to->strips_start = counts[0] == 1;
    return TSR_OK;
}

tsr_status tsr__json_decoder(tsr__json *json, tsr__json_decoding *decoding)
{
    return read_decoder(json, decoding, 0);
}
