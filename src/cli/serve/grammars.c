/* The compiled grammars, which are kept for later requests. On rank 0, the threads that read bodies
 * compile them, and the other ranks are told at the next step, so that they compile them in
 * threads, too, before a text needs them. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/lib/memory.h"
#include "cli/serve/serve.h"

/* Grammars that are kept although nobody uses them, and their memory. */
#define MOST_IDLE 64
#define MOST_IDLE_BYTES (UINT64_C(128) << 20)
/* The time in which masks are found when a grammar is compiled, before its first text begins. */
#define AHEAD_NS UINT64_C(100000000)

struct serve_grammar {
    serve_grammar *next;
    int users;
    bool building; /* a thread compiles it */
    char *text;    /* [size] */
    size_t size;
    tsr_grammar *grammar; /* NULL: not yet, or it could not be compiled */
};

static pthread_mutex_t grammars_lock = PTHREAD_MUTEX_INITIALIZER; /* protects what follows */
static pthread_cond_t grammars_changed = PTHREAD_COND_INITIALIZER;
/* All grammars, the one that was used last first. */
static serve_grammar *grammars;
/* Those that the other ranks have not been told, as serve_grammar_write writes them. */
static cli_text announced;
static int64_t announced_count;

static void destroy(serve_grammar *g)
{
    tsr_grammar_destroy(&g->grammar);
    free(g->text);
    free(g);
}

/* Takes a grammar from the list if it is there. Needs the lock. */
static bool take_out(const serve_grammar *g)
{
    for (serve_grammar **place = &grammars; *place != NULL; place = &(*place)->next)
        if (*place == g) {
            *place = g->next;
            return true;
        }
    return false;
}

/* Finds a grammar, moves it to the start of the list, and waits until it has been compiled. Returns
 * NULL if there is none, or if it could not be. Needs the lock. */
static serve_grammar *find(const char *text, size_t size)
{
    serve_grammar *g = grammars;
    while (g != NULL && (g->size != size || memcmp(g->text, text, size) != 0))
        g = g->next;
    if (g == NULL)
        return NULL;
    take_out(g);
    g->next = grammars;
    grammars = g;
    g->users++;
    while (g->building)
        pthread_cond_wait(&grammars_changed, &grammars_lock);
    if (g->grammar != NULL)
        return g;
    if (--g->users == 0)
        destroy(g);
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

static tsr_status compile(const serve_server *server, const char *text, size_t size, bool ahead,
                          tsr_grammar **out)
{
    tsr_grammar_state *start = NULL;
    tsr_status status = tsr_grammar_create(
        tsr_grammar_params(.tokenizer = server->tokenizer, .text = text, .size_bytes = size,
                           .root = SERVE_REPLY_RULE, .ahead_ns = ahead ? AHEAD_NS : 0),
        out);
    /* A grammar that is too ambiguous for any text is refused here: a text that cannot begin is an
     * error of the whole step. */
    if (status == TSR_OK)
        status = tsr_grammar_state_create(*out, NULL, &start);
    tsr_grammar_state_destroy(&start);
    if (status != TSR_OK)
        tsr_grammar_destroy(out);
    return status;
}

/* Gets a grammar; `ahead`: in a thread that has time, so that masks are found, too. */
static tsr_status get(const serve_server *server, const char *text, size_t size, bool ahead,
                      serve_grammar **out)
{
    pthread_mutex_lock(&grammars_lock);
    *out = find(text, size);
    if (*out != NULL) {
        pthread_mutex_unlock(&grammars_lock);
        return TSR_OK;
    }
    serve_grammar *g = cli_alloc(1, sizeof *g);
    *g = (serve_grammar){.next = grammars, .users = 1, .building = true, .size = size};
    g->text = cli_alloc(size + 1, 1);
    memcpy(g->text, text, size);
    grammars = g;
    if (ahead && server->listens) {
        serve_grammar_write(g, &announced);
        announced_count++;
    }
    pthread_mutex_unlock(&grammars_lock);
    tsr_grammar *compiled = NULL;
    const tsr_status status = compile(server, text, size, ahead, &compiled);
    pthread_mutex_lock(&grammars_lock);
    g->grammar = compiled;
    g->building = false;
    if (status != TSR_OK) {
        take_out(g);
        if (--g->users == 0)
            destroy(g);
    }
    pthread_cond_broadcast(&grammars_changed);
    pthread_mutex_unlock(&grammars_lock);
    if (status == TSR_OK)
        *out = g;
    return status;
}

tsr_status serve_grammar_get(const serve_server *server, const char *text, size_t size,
                             serve_grammar **out)
{
    return get(server, text, size, true, out);
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
    cli_text_free(&announced);
    announced_count = 0;
    pthread_mutex_unlock(&grammars_lock);
}

tsr_grammar *serve_grammar_of(const serve_grammar *g)
{
    return g->grammar;
}

void serve_grammar_write(const serve_grammar *g, cli_text *out)
{
    const int64_t size = g != NULL ? (int64_t)g->size : -1;
    cli_text_add(out, (const char *)&size, sizeof size);
    if (g != NULL)
        cli_text_add(out, g->text, g->size);
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
    return get(server, text, (size_t)size, false, out);
}

/* Announcements -------------------------------------------------------------------------------- */

int64_t serve_grammars_announce(cli_text *out)
{
    pthread_mutex_lock(&grammars_lock);
    const int64_t count = out != NULL ? announced_count : 0;
    if (count > 0)
        cli_text_add(out, announced.data, announced.size);
    announced_count = 0;
    announced.size = 0;
    pthread_mutex_unlock(&grammars_lock);
    return count;
}

typedef struct announcement {
    serve_work work;
    const serve_server *server;
    cli_text text;
} announcement;

static void compile_announced(serve_work *work)
{
    announcement *a = (announcement *)work;
    serve_grammar *g = NULL;
    /* Only the rank that chooses tokens needs masks: rank 0, or one of the last stage. The rank
     * that has got the request refuses it if the grammar is wrong. */
    const bool masks = inference_chosen.stages.count > 1;
    if (get(a->server, a->text.data, a->text.size, masks, &g) == TSR_OK)
        serve_grammar_leave(g);
    cli_text_free(&a->text);
    free(a);
}

void serve_grammar_hear(serve_server *server, const char **at)
{
    int64_t size;
    memcpy(&size, *at, sizeof size);
    *at += sizeof size;
    if (!server->listens && server->readers == NULL)
        server->readers = serve_readers_start();
    if (!server->listens && server->readers != NULL) {
        announcement *a = cli_alloc(1, sizeof *a);
        a->work.run = compile_announced;
        a->server = server;
        cli_text_add(&a->text, *at, (size_t)size);
        serve_readers_add(server->readers, &a->work);
    }
    *at += size;
}
