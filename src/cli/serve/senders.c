/* How long clients may take to send a request. libmicrohttpd closes connections on which nothing
 * happens; but a client that sends a byte now and then would keep its connection for ever, and many
 * of them would leave none for others. */
#include <stdlib.h>
#include <sys/socket.h>

#include "cli/lib/memory.h"
#include "cli/serve/serve.h"

/* A connection, in the server's list of them. */
struct serve_sender {
    int socket;
    double since; /* when the request that is being sent could begin, of serve_now; 0: none is */
    serve_sender *next, *previous;
};

static void add(serve_server *s, serve_sender *one)
{
    one->next = s->senders;
    if (one->next != NULL)
        one->next->previous = one;
    s->senders = one;
}

static void take_out(serve_server *s, const serve_sender *one)
{
    if (one->next != NULL)
        one->next->previous = one->previous;
    if (one->previous != NULL)
        one->previous->next = one->next;
    else
        s->senders = one->next;
}

serve_sender *serve_sender_begin(serve_server *s, int socket)
{
    serve_sender *one = cli_alloc(1, sizeof *one);
    one->socket = socket;
    one->since = serve_now();
    pthread_mutex_lock(&s->lock);
    add(s, one);
    pthread_mutex_unlock(&s->lock);
    return one;
}

void serve_sender_end(serve_server *s, serve_sender *one)
{
    if (one == NULL)
        return;
    pthread_mutex_lock(&s->lock);
    take_out(s, one);
    pthread_mutex_unlock(&s->lock);
    free(one);
}

void serve_sender_set(serve_server *s, serve_sender *one, bool sends)
{
    if (one == NULL)
        return;
    pthread_mutex_lock(&s->lock);
    one->since = sends ? serve_now() : 0;
    pthread_mutex_unlock(&s->lock);
}

void serve_end_slow_senders(serve_server *s)
{
    const double now = serve_now();
    for (serve_sender *one = s->senders; one != NULL; one = one->next) {
        if (one->since <= 0 || now <= one->since + serve_chosen.send_time)
            continue;
        one->since = 0;
        s->metrics.slow++;
        shutdown(one->socket, SHUT_RDWR); /* the thread of connections then closes it */
    }
}
