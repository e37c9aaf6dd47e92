#include <stdio.h>
#include <stdlib.h>
#include <tessera/tessera.h>

/* Prints the library's log. Only used if this program's variable HELLO_LOG is set. */
static void print_log(void *user, tsr_log_level level, const char *message)
{
    (void)level;
    fprintf(user, "%s\n", message);
}

int main(void)
{
    const char *log = getenv("HELLO_LOG");
    tsr_comm *comm = NULL;
    float sum = 0;
    if (log != NULL && *log != '\0')
        tsr_log_set(print_log, stderr, TSR_LOG_INFO);

    int failed = tsr_comm_create(NULL, &comm); /* finds the other processes */
    if (!failed) {
        sum = (float)(tsr_comm_rank(comm) + 1);
        failed = tsr_comm_all_reduce(comm, &sum, &sum, 1, TSR_F32, TSR_OP_SUM, NULL);
    }
    if (failed)
        fprintf(stderr, "%s\n", tsr_last_error());
    else
        printf("rank %d of %d, here %d of %d: the sum is %g\n", tsr_comm_rank(comm),
               tsr_comm_size(comm), tsr_comm_local_rank(comm), tsr_comm_local_size(comm),
               (double)sum);
    if (fflush(stdout) != 0) {
        perror("standard output");
        failed = 1;
    }
    tsr_comm_destroy(&comm);
    return failed != 0;
}
