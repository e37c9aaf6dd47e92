/* A training loop that survives lost ranks and takes in new ones, on host memory: the ranks find
 * the mean of a data set by gradient descent.
 *
 *     tessera launch -n 3 --respawn 1 ./hello_elastic 1 100
 *
 * Rank 1 kills itself at step 100. The others continue, and the process that the launcher starts in
 * its place joins them. Without arguments no rank is killed. */
#define _DEFAULT_SOURCE
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <tessera/tessera.h>
#include <unistd.h>

#define STEPS 600
#define GROW_EVERY 20
#define ITEMS 1000

/* The state of which every rank has a copy. */
typedef struct training {
    int64_t step;
    double weight;
} training;

/* Gives all ranks the state of the rank that is ahead: an operation may have succeeded on some
 * ranks before others learned that a rank is lost. New processes, at step 0, get the state, too. */
static int agree_on_state(tsr_comm *comm, training *state)
{
    int64_t best = state->step;
    if (tsr_comm_all_reduce(comm, &best, &best, 1, TSR_I64, TSR_OP_MAX, NULL) != TSR_OK)
        return 1;
    int32_t root = state->step == best ? tsr_comm_rank(comm) : INT32_MAX;
    return tsr_comm_all_reduce(comm, &root, &root, 1, TSR_I32, TSR_OP_MIN, NULL) != TSR_OK ||
           tsr_comm_broadcast(comm, state, sizeof *state, TSR_U8, root, NULL) != TSR_OK;
}

static int step(tsr_comm *comm, training *state)
{
    const int64_t size = tsr_comm_size(comm);
    const int64_t item = (state->step * size + tsr_comm_rank(comm)) % ITEMS;
    double gradient = state->weight - (double)(item % 10);
    if (tsr_comm_all_reduce(comm, &gradient, &gradient, 1, TSR_F64, TSR_OP_AVG, NULL) != TSR_OK)
        return 1;
    state->weight -= 0.02 * gradient;
    state->step++;
    return 0;
}

/* Replaces the communicator, and prints this on its first rank. */
static void use(tsr_comm **comm, tsr_comm *by, const training *state)
{
    tsr_comm_destroy(comm);
    *comm = by;
    if (tsr_comm_rank(by) == 0)
        printf("step %d: %d ranks\n", (int)state->step, tsr_comm_size(by));
    (void)fflush(stdout);
}

/* Continues with the ranks that are left. They wait at most 10 s for ranks that do not answer. */
static int shrink(tsr_comm **comm, const training *state)
{
    tsr_comm *smaller;
    const tsr_comm_shrink_params *params = tsr_comm_shrink_params(.timeout_ns = 20000000000);
    if (tsr_comm_shrink(*comm, params, &smaller) != TSR_OK)
        return 1;
    use(comm, smaller, state);
    return 0;
}

/* Adds the processes that wait to join. */
static int grow(tsr_comm **comm, const training *state)
{
    tsr_comm *larger;
    const tsr_comm_grow_params *params = tsr_comm_grow_params(.count = 8, .timeout_ns = 50000000);
    if (tsr_comm_grow(*comm, params, &larger) == TSR_OK)
        use(comm, larger, state);
    return tsr_comm_status(*comm) != TSR_OK; /* usually no process waits to join */
}

static int train(tsr_comm **comm, training *state, int64_t killed_at)
{
    bool must_agree = true;
    while (state->step < STEPS) {
        int failed = must_agree && agree_on_state(*comm, state);
        must_agree = failed;
        const int before = tsr_comm_size(*comm);
        if (!failed && state->step == killed_at)
            raise(SIGKILL);
        if (!failed && state->step < STEPS)
            failed = step(*comm, state);
        if (!failed && state->step % GROW_EVERY == 0)
            failed = grow(comm, state);
        must_agree = must_agree || failed || tsr_comm_size(*comm) != before;
        if (failed && shrink(comm, state))
            return 1;
        usleep(1000);
    }
    return 0;
}

int main(int argc, char **argv)
{
    tsr_comm *comm = NULL;
    training state = {0};
    int failed = tsr_comm_create(NULL, &comm) != TSR_OK;
    const bool is_victim = !failed && argc > 2 && tsr_comm_rank(comm) == atoi(argv[1]);
    failed = failed || train(&comm, &state, is_victim ? atoi(argv[2]) : -1);
    if (failed)
        fprintf(stderr, "%s\n", tsr_last_error());
    else if (tsr_comm_rank(comm) == 0)
        printf("step %d: the mean is about %.1f\n", (int)state.step, state.weight);
    tsr_comm_destroy(&comm);
    return failed;
}
