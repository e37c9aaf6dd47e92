/* The compiled grammars, which are kept for later requests. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/lib/memory.h"
#include "cli/serve/serve.h"

/* Grammars that are kept although nobody uses them, and their memory. */
#define MOST_IDLE 64
#define MOST_IDLE_BYTES (UINT64_C(128) << 20)

struct serve_grammar {
    serve_grammar *next;
    int users;
    char *text; /* [size] */
    size_t size;
    tsr_grammar *grammar;
};

/* All grammars, the one that was used last first. */
static serve_grammar *grammars;
static pthread_mutex_t grammars_lock = PTHREAD_MUTEX_INITIALIZER;

static void destroy(serve_grammar *g)
{
    tsr_grammar_destroy(&g->grammar);
    free(g->text);
    free(g);
}

/* Finds a grammar, and moves it to the start of the list. Needs the lock. */
static serve_grammar *find(const char *text, size_t size)
{
    for (serve_grammar **place = &grammars; *place != NULL; place = &(*place)->next) {
        serve_grammar *g = *place;
        if (g->size != size || memcmp(g->text, text, size) != 0)
            continue;
        *place = g->next;
        g->next = grammars;
        grammars = g;
        g->users++;
        return g;
    }
    return NULL;
}

/* Destroys those that nobody has used for longest. Needs the lock. */
static void forget(int most, uint64_t most_bytes)
{
    int idle = 0;
    uint64_t bytes = 0;
    for (serve_grammar **place = &grammars; *place != NULL;) {
        serve_grammar *g = *place;
        idle += g->users == 0;
        bytes += g->users == 0 ? tsr_grammar_bytes(g->grammar) : 0;
        if (g->users == 0 && (idle > most || bytes > most_bytes)) {
            *place = g->next;
            destroy(g);
        } else {
            place = &g->next;
        }
    }
}

tsr_status serve_grammar_get(const serve_server *server, const char *text, size_t size,
                             serve_grammar **out)
{
    pthread_mutex_lock(&grammars_lock);
    *out = find(text, size);
    pthread_mutex_unlock(&grammars_lock);
    if (*out != NULL)
        return TSR_OK;
    tsr_grammar *compiled = NULL;
    tsr_grammar_state *start = NULL;
    tsr_status status =
        tsr_grammar_create(tsr_grammar_params(.tokenizer = server->tokenizer, .text = text,
                                              .size_bytes = size, .root = SERVE_REPLY_RULE),
                           &compiled);
    /* A grammar that is too ambiguous for any text is refused here: a text that cannot begin is an
     * error of the whole step. */
    if (status == TSR_OK)
        status = tsr_grammar_state_create(compiled, NULL, &start);
    tsr_grammar_state_destroy(&start);
    if (status != TSR_OK) {
        tsr_grammar_destroy(&compiled);
        return status;
    }
    serve_grammar *g = cli_alloc(1, sizeof *g);
    *g = (serve_grammar){.users = 1, .size = size, .grammar = compiled};
    g->text = cli_alloc(size + 1, 1);
    memcpy(g->text, text, size);
    pthread_mutex_lock(&grammars_lock);
    g->next = grammars;
    grammars = g;
    pthread_mutex_unlock(&grammars_lock);
    *out = g;
    return TSR_OK;
}

void serve_grammar_leave(serve_grammar *g)
{
    if (g == NULL)
        return;
    pthread_mutex_lock(&grammars_lock);
    g->users--;
    forget(MOST_IDLE, MOST_IDLE_BYTES);
    pthread_mutex_unlock(&grammars_lock);
}

void serve_grammars_finish(void)
{
    pthread_mutex_lock(&grammars_lock);
    forget(0, 0);
    pthread_mutex_unlock(&grammars_lock);
}

tsr_grammar *serve_grammar_of(const serve_grammar *g)
{
    return g->grammar;
}

void serve_grammar_write(const serve_grammar *g, serve_text *out)
{
    const int64_t size = g != NULL ? (int64_t)g->size : -1;
    serve_text_add(out, (const char *)&size, sizeof size);
    if (g != NULL)
        serve_text_add(out, g->text, g->size);
}

tsr_status serve_grammar_read(const serve_server *server, const char **at, serve_grammar **out)
{
    int64_t size;
    memcpy(&size, *at, sizeof size);
    *at += sizeof size;
    *out = NULL;
    if (size < 0)
        return TSR_OK;
    const char *text = *at;
    *at += size;
    return serve_grammar_get(server, text, (size_t)size, out);
}
