/* Seeds a job, and reproduces numbers that other systems draw. Returns 0 if everything is as
 * expected. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tessera/tessera.h>

/* Stops at the first error. */
static void try(tsr_status status)
{
    if (status != TSR_OK) {
        fprintf(stderr, "hello_seeds: %s\n", tsr_last_error());
        exit(EXIT_FAILURE);
    }
}

static void check(bool right, const char *what)
{
    if (!right) {
        fprintf(stderr, "hello_seeds: %s is wrong\n", what);
        exit(EXIT_FAILURE);
    }
}

/* Seeds devices and workers, draws from a device's generator, and continues from a snapshot. */
static void seed_the_job(void)
{
    tsr_seed_manager *seeds = NULL;
    tsr_rng *dropout = NULL;
    int64_t seed;
    char snapshot[4096];
    size_t size;
    try(tsr_seed_manager_create(tsr_seed_manager_params(.device_count = 4), &seeds));
    try(tsr_seed_global(seeds, 42));                    /* the process, and devices 0 … 3 */
    try(tsr_seed_all(seeds, TSR_SEED_DEVICE, 42, 0));   /* the same devices again */
    try(tsr_seed_all(seeds, TSR_SEED_WORKER, 100, 2));  /* workers 0 and 1 */
    try(tsr_seed_set(seeds, TSR_SEED_WORKER, 2, 5));    /* worker 2, with exactly this seed */
    try(tsr_seed_of(seeds, TSR_SEED_DEVICE, 3, &seed)); /* 45 */
    try(tsr_seed_of_op(seeds, 42, 1, 7, &seed));        /* 42 + 1 · 1000 + 7 */
    try(tsr_seed_stream(seeds, TSR_SEED_DEVICE, 3, &dropout));
    try(tsr_seed_save(seeds, TSR_SEED_FORMAT_JSON, sizeof snapshot, snapshot, &size));
    const uint64_t drawn = tsr_rng_next_u64(dropout);
    try(tsr_seed_load(seeds, TSR_SEED_FORMAT_JSON, snapshot, size));
    try(tsr_seed_stream(seeds, TSR_SEED_DEVICE, 3, &dropout));

    check(seed == 1049, "the seed of an operation");
    check(tsr_rng_next_u64(dropout) == drawn, "the number after loading a snapshot");
    for (uint64_t i = 0; i < tsr_seed_event_count(seeds); i++) {
        tsr_seed_event event = TSR_INIT(tsr_seed_event);
        try(tsr_seed_get_event(seeds, i, &event));
        printf("%s %d: seed %d\n", tsr_seed_kind_name(event.kind), event.id, (int)event.seed);
    }
    tsr_seed_clear_events(seeds);
    tsr_seed_manager_destroy(&seeds);
}

/* Seeds workers for each epoch: hashed seeds depend on it. */
static void seed_epochs(void)
{
    tsr_seed_manager *seeds = NULL;
    int64_t seed[2];
    try(tsr_seed_manager_create(tsr_seed_manager_params(.strategy = TSR_SEED_STRATEGY_HASHED),
                                &seeds));
    for (int epoch = 0; epoch < 2; epoch++) {
        try(tsr_seed_set_epoch(seeds, epoch));
        try(tsr_seed_all(seeds, TSR_SEED_WORKER, 42, 4)); /* workers 0 … 3 */
        try(tsr_seed_of(seeds, TSR_SEED_WORKER, 1, &seed[epoch]));
    }
    check(seed[0] != seed[1], "the seed of a worker in the next epoch");
    tsr_seed_manager_destroy(&seeds);
}

/* Derives seeds without a manager. */
static void derive_seeds(void)
{
    const tsr_seed_point op = {.base = 42, .kind = TSR_SEED_OP, .device = 1, .op = 7};
    int64_t documented, hashed;
    tsr_seed_key key;
    tsr_rng rng;
    try(tsr_seed_derive(TSR_SEED_STRATEGY_DOCUMENTED, &op, &documented)); /* 1049 */
    try(tsr_seed_derive(TSR_SEED_STRATEGY_HASHED, &op, &hashed));         /* 64 bits of a hash */
    try(tsr_seed_derive_key(&op, &key));                                  /* 128 bits */
    try(tsr_rng_init(TSR_RNG_PHILOX, key.seed, key.stream, &rng));
    check(documented == 1049 && hashed != documented, "a derived seed");
    check(tsr_rng_next_double(&rng) < 1, "a number");
}

/* Draws torch.randperm(10) after torch.manual_seed(0), and continues from a saved state. */
static void reproduce_torch(void)
{
    static const int64_t expected[10] = {4, 1, 7, 5, 3, 9, 0, 8, 6, 2};
    tsr_rng rng, again;
    int64_t order[10], numbers[3];
    char state[TSR_RNG_STATE_BYTES];
    size_t size;
    try(tsr_rng_init(TSR_RNG_MT19937, 0, 0, &rng));
    try(tsr_torch_randperm(&rng.as.mt19937, TSR_TORCH_DEFAULT, 10, order));
    check(memcmp(order, expected, sizeof order) == 0, "randperm");

    try(tsr_rng_save(&rng, sizeof state, state, &size));
    try(tsr_torch_randint(&rng.as.mt19937, TSR_TORCH_DEFAULT, 0, 10, 3, numbers));
    try(tsr_rng_load(state, size, &again));
    tsr_rng_skip(&again, 2); /* each number has taken one of the generator's words */
    check((int64_t)(tsr_rng_next_u32(&again) % 10) == numbers[2], "randint");
}

static void reproduce_dotnet(void)
{
    tsr_rng rng;
    int32_t die;
    int64_t items[] = {0, 1, 2, 3, 4};
    try(tsr_rng_init(TSR_RNG_DOTNET, 42, 0, &rng)); /* new Random(42) */
    check(tsr_dotnet_next(&rng.as.dotnet) == 1434747710, "Next()");
    try(tsr_dotnet_next_range(&rng.as.dotnet, 1, 7, &die)); /* Next(1, 7) */
    try(tsr_dotnet_shuffle(&rng.as.dotnet, 5, items));
    check(die >= 1 && die < 7, "Next(1, 7)");
}

static void reproduce_mlx(void)
{
    tsr_threefry_key state = tsr_threefry_key_from_seed(0), pair[2], first; /* mx.random.seed(0) */
    float uniform[4];
    int32_t integers[4];
    int64_t order[4], sorted[4];
    uint8_t bytes[4];
    try(tsr_threefry_split(state, 2, pair)); /* mx.random.split(mx.random.key(0)) */
    first = tsr_threefry_next_key(&state);
    check(memcmp(&first, &pair[1], sizeof first) == 0, "split");
    try(tsr_threefry_uniform(first, 4, uniform));
    try(tsr_threefry_randint(first, 0, 10, 4, integers));
    try(tsr_threefry_permutation(first, 4, order));
    try(tsr_threefry_argsort_uniform(first, 4, sorted)); /* mx.argsort(mx.random.uniform((4,))) */
    try(tsr_threefry_bits(first, 1, 4, bytes));
    for (int i = 0; i < 4; i++)
        check(integers[i] == (int32_t)(10 * uniform[i]) && order[i] == sorted[i], "randint");
}

/* Draws without another system's convention: numbers below n that are exactly uniform. */
static void roll_dice(tsr_rng_kind kind)
{
    tsr_rng rng;
    try(tsr_rng_init(kind, 42, 0, &rng));
    printf("%s:", tsr_rng_kind_name(kind));
    for (int i = 0; i < 10; i++)
        printf(" %d", (int)tsr_rng_below(&rng, 6) + 1);
    printf("\n");
}

int main(void)
{
    seed_the_job();
    seed_epochs();
    derive_seeds();
    reproduce_torch();
    reproduce_dotnet();
    reproduce_mlx();
    for (int kind = TSR_RNG_PHILOX; kind <= TSR_RNG_THREEFRY; kind++)
        roll_dice((tsr_rng_kind)kind);
    if (fflush(stdout) != 0) {
        perror("standard output");
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}
