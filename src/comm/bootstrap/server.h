/* The server of a rendezvous, for rank 0. It listens, waits until all ranks have joined, and
 * performs their exchanges. */
#ifndef TSR_COMM_BOOTSTRAP_SERVER_H
#define TSR_COMM_BOOTSTRAP_SERVER_H

#include "comm/bootstrap/connections.h"

tsr_status tsr__server_open(const tsr__rendezvous_params *params, tsr__server **out) TSR_NODISCARD;
/* The first message to a process that joins a running job. */
typedef struct tsr__introduction {
    int32_t old_size;  /* the number of ranks that the job had before it grew */
    int32_t newcomers; /* the number of processes that join */
    int32_t index;     /* the receiver's number among the newcomers, from 0 */
} tsr__introduction;
enum { TSR__INTRODUCTION_SIZE = 12 };

/* Opens a server for processes that join a running job. params->grows must be true. Waits until
 * params->size − 1 of them have joined, or until the timeout. Those that have joined then have the
 * ranks 1, 2, … of the server. Error: TSR_ERR_TIMEOUT if none has joined. */
tsr_status tsr__server_open_growing(const tsr__rendezvous_params *params, int32_t *joined,
                                    tsr__server **out) TSR_NODISCARD;
/* Tells each process that joins its place in the job, which had `old_size` ranks before. */
tsr_status tsr__server_introduce(tsr__server *server, int32_t old_size,
                                 const tsr__bootstrap_limit *limit) TSR_NODISCARD;
/* Sends `status` and the recorded error text to all processes that have joined. */
void tsr__server_abort(tsr__server *server, tsr_status status);
/* Makes a server without a listener from authenticated connections, which it then owns. channels[r]
 * leads to rank r, for 1 <= r < `size`. */
tsr_status tsr__server_adopt(int32_t size, const tsr__channel *channels,
                             tsr__server **out) TSR_NODISCARD;
tsr_status tsr__server_exchange(tsr__server *server, const void *mine, uint64_t size_bytes,
                                const tsr__bootstrap_limit *limit,
                                tsr__bootstrap_gathered *out) TSR_NODISCARD;
void tsr__server_close(tsr__server **server);

#endif
