#include "tokenizer/token_trie.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "tokenizer/tokenizer.h"

struct tsr__trie_place {
    _Atomic(tsr__token_trie *) trie; /* NULL: it has not been built */
};

typedef struct word {
    const uint8_t *bytes;
    uint32_t size;
    int32_t id;
} word;

static int compare_words(const void *a, const void *b)
{
    const word *x = a, *y = b;
    const int order = memcmp(x->bytes, y->bytes, x->size < y->size ? x->size : y->size);
    if (order != 0)
        return order;
    if (x->size != y->size)
        return x->size < y->size ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

bool tsr__token_has_code(const tsr__token *token)
{
    return tsr__is_control(token) || token->type == TSR__TOKEN_USER;
}

/* Lists the tokens that are text, and the codes of others, in the order of their bytes. Writes the
 * codes to codes[4 · tokens]. */
static tsr_status list_words(const tsr_tokenizer *tokenizer, uint8_t *codes, word **out,
                             uint32_t *count)
{
    const tsr__vocabulary *v = &tokenizer->vocabulary;
    word *words = tsr__calloc(v->count, 2 * sizeof *words);
    if (!words)
        return TSR_ERR_NO_MEMORY;
    *count = 0;
    for (size_t id = 0; id < v->count; id++) {
        const tsr__token *token = &v->tokens[id];
        const uint8_t *bytes = (const uint8_t *)v->strings.data + token->bytes;
        uint8_t *code = codes + TSR__TOKEN_CODE * id;
        tsr__token_code((int32_t)id, code);
        if (tsr__token_has_code(token))
            words[(*count)++] = (word){code, TSR__TOKEN_CODE, (int32_t)id};
        if (!tsr__is_control(token) && token->bytes_size > 0 &&
            memchr(bytes, TSR__TOKEN_CODE_FIRST, token->bytes_size) == NULL)
            words[(*count)++] = (word){bytes, token->bytes_size, (int32_t)id};
    }
    qsort(words, *count, sizeof *words, compare_words);
    *out = words;
    return TSR_OK;
}

/* Returns how many first bytes of a word are those of the word before it. */
static uint32_t common(const word *words, uint32_t i)
{
    uint32_t same = 0;
    if (i == 0)
        return 0;
    while (same < words[i].size && same < words[i - 1].size &&
           words[i].bytes[same] == words[i - 1].bytes[same])
        same++;
    return same;
}

static void fill(tsr__token_trie *t, const word *words, uint32_t count, uint32_t *path)
{
    uint32_t node = 0, depth = 0;
    path[0] = 0;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t same = common(words, i);
        for (; depth > same; depth--)
            t->nexts[path[depth]] = node + 1;
        for (; depth < words[i].size; depth++) {
            node++;
            path[depth + 1] = node;
            t->bytes[node] = words[i].bytes[depth];
            t->depths[node] = depth + 1;
            t->firsts[node] = i;
        }
        t->tokens[i] = words[i].id;
    }
    for (;; depth--) {
        t->nexts[path[depth]] = node + 1;
        if (depth == 0)
            break;
    }
    t->firsts[node + 1] = count;
    for (uint32_t n = t->count; n-- > 0;) {
        t->deepest[n] = t->depths[n];
        for (uint32_t below = n + 1; below < t->nexts[n]; below = t->nexts[below])
            if (t->deepest[below] > t->deepest[n])
                t->deepest[n] = t->deepest[below];
    }
}

/* Builds the trie of a list of words. */
static tsr_status build_words(const word *words, uint32_t count, tsr__token_trie *t)
{
    uint32_t nodes = 1;
    for (uint32_t i = 0; i < count; i++) {
        nodes += words[i].size - common(words, i);
        t->longest = words[i].size > t->longest ? words[i].size : t->longest;
    }
    t->count = nodes;
    atomic_init(&t->guest, NULL);
    t->bytes = tsr__calloc(nodes, sizeof *t->bytes);
    t->depths = tsr__calloc(nodes, sizeof *t->depths);
    t->nexts = tsr__calloc(nodes, sizeof *t->nexts);
    t->deepest = tsr__calloc(nodes, sizeof *t->deepest);
    t->firsts = tsr__calloc((size_t)nodes + 1, sizeof *t->firsts);
    t->tokens = tsr__calloc(count, sizeof *t->tokens);
    uint32_t *path = tsr__calloc((size_t)t->longest + 1, sizeof *path);
    const bool enough =
        t->bytes && t->depths && t->nexts && t->deepest && t->firsts && t->tokens && path;
    if (enough)
        fill(t, words, count, path);
    tsr__free(path);
    return enough ? TSR_OK : TSR_ERR_NO_MEMORY;
}

static tsr_status build(const tsr_tokenizer *tokenizer, tsr__token_trie *t)
{
    word *words = NULL;
    uint32_t count = 0;
    uint8_t *codes = tsr__calloc(tokenizer->vocabulary.count, TSR__TOKEN_CODE);
    tsr_status status = codes ? list_words(tokenizer, codes, &words, &count) : TSR_ERR_NO_MEMORY;
    if (status == TSR_OK)
        status = build_words(words, count, t);
    tsr__free(words);
    tsr__free(codes);
    return status;
}

static void destroy(tsr__token_trie *t)
{
    if (!t)
        return;
    tsr__trie_guest *guest = atomic_load(&t->guest);
    if (guest)
        guest->destroy(guest);
    tsr__free(t->bytes);
    tsr__free(t->depths);
    tsr__free(t->nexts);
    tsr__free(t->deepest);
    tsr__free(t->firsts);
    tsr__free(t->tokens);
    tsr__free(t);
}

tsr_status tsr__tokenizer_trie(const tsr_tokenizer *tokenizer, tsr__token_trie **out)
{
    tsr__token_trie *known = atomic_load(&tokenizer->trie->trie);
    if (!known) {
        tsr__token_trie *trie = tsr__calloc(1, sizeof *trie);
        const tsr_status status = trie ? build(tokenizer, trie) : TSR_ERR_NO_MEMORY;
        if (status != TSR_OK) {
            destroy(trie);
            return status;
        }
        /* If another thread was faster, `known` becomes its trie. */
        if (atomic_compare_exchange_strong(&tokenizer->trie->trie, &known, trie))
            known = trie;
        else
            destroy(trie);
    }
    *out = known;
    return TSR_OK;
}

tsr__trie_place *tsr__trie_place_create(void)
{
    tsr__trie_place *place = tsr__calloc(1, sizeof *place);
    if (place)
        atomic_init(&place->trie, NULL);
    return place;
}

void tsr__trie_place_destroy(tsr__trie_place *place)
{
    if (!place)
        return;
    destroy(atomic_load(&place->trie));
    tsr__free(place);
}
