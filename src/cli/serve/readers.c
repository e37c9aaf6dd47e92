/* Threads that read the bodies of requests. A long prompt takes seconds, in which the thread of all
 * connections must send the texts of others. */
#include <stdlib.h>

#include "cli/lib/memory.h"
#include "cli/serve/serve.h"

/* So many long prompts can be read at the same time before short ones wait for them. */
#define READERS 4

struct serve_readers {
    pthread_t threads[READERS];
    int count;
    pthread_mutex_t lock; /* protects what follows */
    pthread_cond_t changed;
    serve_work *first, *last;
    bool ends;
};

static void *run_reader(void *user)
{
    serve_readers *readers = user;
    pthread_mutex_lock(&readers->lock);
    for (;;) {
        while (readers->first == NULL && !readers->ends)
            pthread_cond_wait(&readers->changed, &readers->lock);
        serve_work *work = readers->first;
        if (work == NULL)
            break;
        readers->first = work->next;
        if (readers->first == NULL)
            readers->last = NULL;
        pthread_mutex_unlock(&readers->lock);
        work->run(work);
        pthread_mutex_lock(&readers->lock);
    }
    pthread_mutex_unlock(&readers->lock);
    return NULL;
}

serve_readers *serve_readers_start(void)
{
    serve_readers *readers = cli_alloc(1, sizeof *readers);
    pthread_mutex_init(&readers->lock, NULL);
    pthread_cond_init(&readers->changed, NULL);
    for (; readers->count < READERS; readers->count++)
        if (pthread_create(&readers->threads[readers->count], NULL, run_reader, readers) != 0)
            break;
    if (readers->count == 0)
        serve_readers_stop(&readers);
    return readers;
}

void serve_readers_add(serve_readers *readers, serve_work *work)
{
    work->next = NULL;
    pthread_mutex_lock(&readers->lock);
    if (readers->last != NULL)
        readers->last->next = work;
    else
        readers->first = work;
    readers->last = work;
    pthread_cond_signal(&readers->changed);
    pthread_mutex_unlock(&readers->lock);
}

void serve_readers_stop(serve_readers **readers)
{
    serve_readers *r = *readers;
    if (r == NULL)
        return;
    pthread_mutex_lock(&r->lock);
    r->ends = true;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
    for (int i = 0; i < r->count; i++)
        pthread_join(r->threads[i], NULL);
    pthread_cond_destroy(&r->changed);
    pthread_mutex_destroy(&r->lock);
    free(r);
    *readers = NULL;
}
