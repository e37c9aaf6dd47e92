/* Every algorithm, for 1 … 64 ranks, with even and uneven counts, in place and not, small and
 * large. Each rank must get the right elements, and all algorithms must combine the
 * contributions to every element in the same order on every rank. */
#include <stdlib.h>
#include <string.h>

#include "comm/algorithms/algorithms.h"
#include "comm/algorithms/choose.h"
#include "comm/algorithms/sim.h"
#include "support/check_main.h"
#include "support/random.h"

static const uint64_t counts[] = {0, 1, 2, 3, 7, 64, 65, 131};
#define COUNTS (sizeof counts / sizeof counts[0])

/* Simulations of many ranks take long, so above 20 there are only nine numbers of ranks: 24, 29,
 * … 64. Each has an eighth of the combinations, and together they cover all. */
static bool is_skipped(int size, size_t c, unsigned flags)
{
    return size > 20 && (flags ^ (c + (size_t)(size / 5))) % 8 != 0;
}

/* Defines a test. Each of its processes (Check's loop variable) runs up to eight numbers of
 * ranks. */
#define PATTERN_TEST(name)                                                                         \
    static void name##_of(int size);                                                               \
    START_TEST(name)                                                                               \
    {                                                                                              \
        for (int size = 8 * _i + 1; size <= 8 * _i + 8; size++)                                    \
            if (size <= 20 || size % 5 == 4)                                                       \
                name##_of(size);                                                                   \
    }                                                                                              \
    END_TEST                                                                                       \
    static void name##_of(int size)

static sim_job all;
static tsr__hierarchy
    placed[SIM_RANKS]; /* the subtree of each rank, in tests of hierarchical operations */
static uint64_t starts[SIM_RANKS + 1];

static element *elements(uint64_t count)
{
    element *array = malloc((count + 1) * sizeof *array);
    for (uint64_t i = 0; i <= count; i++)
        array[i] = (element){.index = POISON};
    return array;
}

static void begin(int size, bool rendezvous)
{
    all = (sim_job){.size = size, .rendezvous = rendezvous};
    for (int r = 0; r < size; r++)
        all.ranks[r].hierarchy = &placed[r];
}

/* Allocates send[send_count] and recv[recv_count] for a rank. In place, recv is at send +
 * offset, or, if offset is negative, send is at recv − offset. */
static void give(int rank, uint64_t send_count, uint64_t recv_count, bool in_place, int64_t offset)
{
    sim_rank *mine = &all.ranks[rank];
    mine->send_count = send_count;
    mine->recv_count = recv_count;
    if (!in_place) {
        mine->send = elements(send_count);
        mine->recv = elements(recv_count);
    } else if (offset >= 0) {
        mine->send = elements(send_count > recv_count ? send_count : recv_count);
        mine->recv = mine->send + offset;
    } else {
        mine->recv = elements(recv_count);
        mine->send = mine->recv - offset;
    }
}

static void take_back(int rank, bool in_place, int64_t offset)
{
    sim_rank *mine = &all.ranks[rank];
    if (!in_place || offset >= 0)
        free(mine->send);
    if (!in_place || offset < 0)
        free(mine->recv);
}

/* Returns blocks, one for each rank, of 0 … 9 elements; if `even`, all have the same size. */
static tsr__blocks random_blocks(uint64_t *random, int size, bool even)
{
    if (even)
        return (tsr__blocks){.each = (uint64_t)random_between(random, 0, 9)};
    starts[0] = 0;
    for (int r = 0; r < size; r++)
        starts[r + 1] = starts[r] + (uint64_t)random_between(random, 0, 9);
    return (tsr__blocks){.starts = starts};
}

/* Computes recursively, independently of the algorithms' code, the documented order in which
 * contributions are combined: leaves 0 … P−1 of a tree, first those at distance 1. */
static element expected_leaf(int size, int extra, int leaf, uint64_t index);
static uint64_t mixed(uint64_t x)
{
    x = (x ^ (x >> 31)) * UINT64_C(0xBF58476D1CE4E5B9);
    return x ^ (x >> 29);
}
static element joined(element a, element b)
{
    a.ranks |= b.ranks;
    a.order = mixed(mixed(a.order) + mixed(b.order));
    return a;
}
static element expected_leaf(int size, int extra, int leaf, uint64_t index)
{
    (void)size;
    if (leaf < extra)
        return joined(sim_leaf(2 * leaf, index), sim_leaf(2 * leaf + 1, index));
    return sim_leaf(leaf + extra, index);
}
static element expected(int size, uint64_t index)
{
    element level[SIM_RANKS];
    int power = 1;
    while (power * 2 <= size)
        power *= 2;
    for (int leaf = 0; leaf < power; leaf++)
        level[leaf] = expected_leaf(size, size - power, leaf, index);
    for (int distance = 1; distance < power; distance *= 2) {
        for (int i = 0; i < power; i += 2 * distance)
            level[i] = joined(level[i], level[i + distance]);
    }
    return level[0];
}

static void check_reduced(int rank, uint64_t at, uint64_t index, bool exact)
{
    element got = all.ranks[rank].recv[at], want = expected(all.size, index);
    ck_assert(got.index == index);
    ck_assert(got.ranks == want.ranks);
    ck_assert(got.divided == (exact || all.size > 1)); /* with one rank, nothing is divided */
    ck_assert(exact ? got.order == 0 : got.order == want.order);
}

typedef void (*make_all_reduce)(tsr__schedule *, int, int, uint64_t, bool);
static void check_all_reduce(int size, uint64_t count, unsigned flags, make_all_reduce make,
                             bool exact)
{
    const bool large = flags & 1, in_place = flags & 2, rendezvous = flags & 4;
    begin(size, rendezvous);
    for (int r = 0; r < size; r++) {
        give(r, count, count, in_place, 0);
        for (uint64_t i = 0; i < count; i++)
            all.ranks[r].send[i] = sim_leaf(r, i);
        make(&all.ranks[r].schedule, size, r, count, large);
    }
    sim_run(&all);
    for (int r = 0; r < size; r++) {
        for (uint64_t i = 0; i < count; i++) {
            check_reduced(r, i, i, exact);
            ck_assert(in_place || all.ranks[r].send[i].ranks == UINT64_C(1) << r);
        }
        take_back(r, in_place, 0);
    }
    sim_finish(&all);
}

static void flat_all_reduce(tsr__schedule *schedule, int size, int rank, uint64_t count, bool large)
{
    (large ? tsr__rabenseifner_all_reduce : tsr__recursive_doubling_all_reduce)(schedule, size,
                                                                                rank, count);
}

static void exact_all_reduce(tsr__schedule *schedule, int size, int rank, uint64_t count,
                             bool large)
{
    (large ? tsr__exact_all_reduce_two_rounds : tsr__exact_all_reduce_one_round)(schedule, size,
                                                                                 rank, count);
}

PATTERN_TEST(all_reduce)
{
    for (size_t c = 0; c < COUNTS; c++) {
        for (unsigned flags = 0; flags < 8; flags++) {
            if (is_skipped(size, c, flags))
                continue;
            check_all_reduce(size, counts[c], flags, flat_all_reduce, false);
            check_all_reduce(size, counts[c], flags, exact_all_reduce, true);
        }
    }
}

typedef void (*make_reduce)(tsr__schedule *, int, int, uint64_t, int, bool);
static void check_reduce(int size, uint64_t count, int root, unsigned flags, make_reduce make,
                         bool exact)
{
    const bool large = flags & 1, in_place = flags & 2, rendezvous = flags & 4;
    begin(size, rendezvous);
    for (int r = 0; r < size; r++) {
        give(r, count, r == root ? count : 0, in_place && r == root, 0);
        for (uint64_t i = 0; i < count; i++)
            all.ranks[r].send[i] = sim_leaf(r, i);
        make(&all.ranks[r].schedule, size, r, count, root, large);
    }
    sim_run(&all);
    for (uint64_t i = 0; i < count; i++)
        check_reduced(root, i, i, exact);
    for (int r = 0; r < size; r++)
        take_back(r, in_place && r == root, 0);
    sim_finish(&all);
}

static void flat_reduce(tsr__schedule *schedule, int size, int rank, uint64_t count, int root,
                        bool large)
{
    (large ? tsr__recursive_halving_reduce : tsr__tree_reduce)(schedule, size, rank, count, root);
}

static void exact_reduce(tsr__schedule *schedule, int size, int rank, uint64_t count, int root,
                         bool large)
{
    (large ? tsr__exact_reduce_two_rounds : tsr__exact_reduce_one_round)(schedule, size, rank,
                                                                         count, root);
}

PATTERN_TEST(reduce)
{
    uint64_t random = (uint64_t)size;
    for (size_t c = 0; c < COUNTS; c++) {
        for (unsigned flags = 0; flags < 8; flags++) {
            if (is_skipped(size, c, flags))
                continue;
            const int root = (int)random_between(&random, 0, size - 1);
            check_reduce(size, counts[c], root, flags, flat_reduce, false);
            check_reduce(size, counts[c], root, flags, exact_reduce, true);
        }
    }
}

typedef void (*make_reduce_scatter)(tsr__schedule *, int, int, const tsr__blocks *);
static void check_reduce_scatter(int size, const tsr__blocks *blocks, unsigned flags,
                                 make_reduce_scatter make, bool exact)
{
    const bool in_place = flags & 2, rendezvous = flags & 4;
    const uint64_t total = tsr__block_start(blocks, size);
    begin(size, rendezvous);
    for (int r = 0; r < size; r++) {
        give(r, total, tsr__block_count(blocks, r), in_place, (int64_t)tsr__block_start(blocks, r));
        for (uint64_t i = 0; i < total; i++)
            all.ranks[r].send[i] = sim_leaf(r, i);
        make(&all.ranks[r].schedule, size, r, blocks);
    }
    sim_run(&all);
    for (int r = 0; r < size; r++) {
        const uint64_t start = tsr__block_start(blocks, r), end = tsr__block_start(blocks, r + 1);
        for (uint64_t i = 0; i < end - start; i++)
            check_reduced(r, i, start + i, exact);
        for (uint64_t i = 0; i < total; i++)
            ck_assert((in_place && i >= start && i < end) ||
                      all.ranks[r].send[i].ranks == UINT64_C(1) << r);
        take_back(r, in_place, 0);
    }
    sim_finish(&all);
}

PATTERN_TEST(reduce_scatter)
{
    uint64_t random = (uint64_t)size;
    for (int i = 0; i < 8; i++) {
        for (unsigned flags = 0; flags < 8; flags += 2) {
            if (is_skipped(size, (size_t)i, flags))
                continue;
            tsr__blocks blocks = random_blocks(&random, size, i % 2 == 0);
            check_reduce_scatter(size, &blocks, flags, tsr__recursive_halving_reduce_scatter,
                                 false);
            check_reduce_scatter(size, &blocks, flags, tsr__exact_reduce_scatter, true);
        }
    }
}

typedef void (*make_all_gather)(tsr__schedule *, int, int, const tsr__blocks *, bool);
static void check_all_gather(int size, const tsr__blocks *blocks, unsigned flags,
                             make_all_gather make)
{
    const bool large = flags & 1, in_place = flags & 2;
    const uint64_t total = tsr__block_start(blocks, size);
    begin(size, flags & 4);
    for (int r = 0; r < size; r++) {
        const uint64_t start = tsr__block_start(blocks, r), count = tsr__block_count(blocks, r);
        give(r, count, total, in_place, 0);
        if (in_place)
            all.ranks[r].send = all.ranks[r].recv + start;
        for (uint64_t i = 0; i < count; i++)
            all.ranks[r].send[i] = sim_leaf(r, start + i);
        make(&all.ranks[r].schedule, size, r, blocks, large);
    }
    sim_run(&all);
    for (int r = 0; r < size; r++) {
        for (int from = 0; from < size; from++) {
            for (uint64_t i = tsr__block_start(blocks, from);
                 i < tsr__block_start(blocks, from + 1); i++)
                ck_assert(all.ranks[r].recv[i].index == i &&
                          all.ranks[r].recv[i].ranks == UINT64_C(1) << from);
        }
        free(all.ranks[r].recv);
        if (!in_place)
            free(all.ranks[r].send);
    }
    sim_finish(&all);
}

static void flat_all_gather(tsr__schedule *schedule, int size, int rank, const tsr__blocks *blocks,
                            bool large)
{
    (large ? tsr__ring_all_gather : tsr__recursive_doubling_all_gather)(schedule, size, rank,
                                                                        blocks);
}

static void direct_all_gather(tsr__schedule *schedule, int size, int rank,
                              const tsr__blocks *blocks, bool large)
{
    (void)large;
    tsr__direct_all_gather(schedule, size, rank, blocks);
}

PATTERN_TEST(all_gather)
{
    uint64_t random = (uint64_t)size;
    for (unsigned flags = 0; flags < 64; flags++) {
        if (is_skipped(size, flags / 8, flags))
            continue;
        tsr__blocks blocks = random_blocks(&random, size, flags & 8);
        check_all_gather(size, &blocks, flags, flat_all_gather);
        check_all_gather(size, &blocks, flags, direct_all_gather);
    }
}

typedef void (*make_broadcast)(tsr__schedule *, int, int, uint64_t, int, bool);
static void check_broadcast(int size, uint64_t count, int root, unsigned flags, make_broadcast make)
{
    begin(size, flags & 2);
    for (int r = 0; r < size; r++) {
        give(r, 0, count, false, 0);
        for (uint64_t i = 0; i < count && r == root; i++)
            all.ranks[r].recv[i] = sim_leaf(r, i);
        make(&all.ranks[r].schedule, size, r, count, root, flags & 1);
    }
    sim_run(&all);
    for (int r = 0; r < size; r++) {
        for (uint64_t i = 0; i < count; i++)
            ck_assert(all.ranks[r].recv[i].index == i && all.ranks[r].recv[i].ranks == UINT64_C(1)
                                                                                           << root);
        take_back(r, false, 0);
    }
    sim_finish(&all);
}

static void flat_broadcast(tsr__schedule *schedule, int size, int rank, uint64_t count, int root,
                           bool large)
{
    (large ? tsr__van_de_geijn_broadcast : tsr__binomial_broadcast)(schedule, size, rank, count,
                                                                    root);
}

PATTERN_TEST(broadcast)
{
    for (size_t c = 0; c < COUNTS; c++) {
        for (int root = 0; root < size; root += 1 + size / 5) {
            for (unsigned flags = 0; flags < 4; flags++)
                check_broadcast(size, counts[c], root, flags, flat_broadcast);
        }
    }
}

/* Tests gather, and scatter, which is its reverse. */
PATTERN_TEST(gather_and_scatter)
{
    uint64_t random = (uint64_t)size;
    for (unsigned flags = 0; flags < 32; flags++) {
        if (is_skipped(size, flags / 8, flags))
            continue;
        const bool scatter = flags & 1, in_place = flags & 2;
        tsr__blocks blocks = random_blocks(&random, size, flags & 8);
        const uint64_t total = tsr__block_start(&blocks, size);
        const int root = (int)random_between(&random, 0, size - 1);
        begin(size, flags & 4);
        for (int r = 0; r < size; r++) {
            const uint64_t start = tsr__block_start(&blocks, r);
            const uint64_t count = tsr__block_count(&blocks, r);
            sim_rank *mine = &all.ranks[r];
            mine->send_count = scatter ? (r == root ? total : 0) : count;
            mine->recv_count = scatter ? count : (r == root ? total : 0);
            mine->send = elements(mine->send_count);
            mine->recv = elements(mine->recv_count);
            if (in_place && r == root) {
                free(scatter ? mine->recv : mine->send);
                if (scatter)
                    mine->recv = mine->send + start;
                else
                    mine->send = mine->recv + start;
            }
            if (scatter) {
                for (uint64_t i = 0; i < total && r == root; i++)
                    mine->send[i] = sim_leaf(root, i);
                tsr__direct_scatter(&mine->schedule, size, r, r == root ? &blocks : NULL, count,
                                    root);
            } else {
                for (uint64_t i = 0; i < count; i++)
                    mine->send[i] = sim_leaf(r, start + i);
                tsr__direct_gather(&mine->schedule, size, r, r == root ? &blocks : NULL, count,
                                   root);
            }
        }
        sim_run(&all);
        for (int r = 0; r < size; r++) {
            const uint64_t start = tsr__block_start(&blocks, r);
            for (uint64_t i = 0; i < tsr__block_count(&blocks, r); i++) {
                element got = scatter ? all.ranks[r].recv[i] : all.ranks[root].recv[start + i];
                ck_assert(got.index == start + i);
                ck_assert(got.ranks == UINT64_C(1) << (scatter ? root : r));
            }
        }
        for (int r = 0; r < size; r++) {
            sim_rank *mine = &all.ranks[r];
            if (!(in_place && r == root && !scatter))
                free(mine->send);
            if (!(in_place && r == root && scatter))
                free(mine->recv);
        }
        sim_finish(&all);
    }
}

PATTERN_TEST(all_to_all)
{
    static uint64_t out[SIM_RANKS][SIM_RANKS + 1], in[SIM_RANKS][SIM_RANKS + 1];
    uint64_t random = (uint64_t)size;
    for (unsigned flags = 0; flags < 16; flags++) {
        const bool in_place = flags & 2;
        for (int from = 0; from < size; from++) {
            for (int to = 0; to < size; to++) {
                uint64_t count = in_place ? flags : (uint64_t)random_between(&random, 0, 5);
                out[from][to + 1] = out[from][to] + count;
            }
        }
        for (int to = 0; to < size; to++) {
            for (int from = 0; from < size; from++)
                in[to][from + 1] = in[to][from] + out[from][to + 1] - out[from][to];
        }
        begin(size, flags & 4);
        for (int r = 0; r < size; r++) {
            tsr__blocks send = {.starts = out[r]}, recv = {.starts = in[r]};
            give(r, out[r][size], in[r][size], in_place, 0);
            for (uint64_t i = 0; i < out[r][size]; i++)
                all.ranks[r].send[i] = sim_leaf(r, i);
            tsr__direct_all_to_all(&all.ranks[r].schedule, size, r, &send, &recv, in_place);
        }
        sim_run(&all);
        for (int r = 0; r < size; r++) {
            for (int from = 0; from < size; from++) {
                for (uint64_t i = in[r][from]; i < in[r][from + 1]; i++) {
                    element got = all.ranks[r].recv[i];
                    ck_assert(got.ranks == UINT64_C(1) << from);
                    ck_assert(got.index == out[from][r] + (i - in[r][from]));
                }
            }
            take_back(r, in_place, 0);
        }
        sim_finish(&all);
    }
}

typedef void (*make_barrier)(tsr__schedule *, int, int);
static void check_barrier(int size, make_barrier make)
{
    begin(size, false);
    for (int r = 0; r < size; r++) {
        make(&all.ranks[r].schedule, size, r);
        all.ranks[r].recv = all.ranks[r].send = elements(0);
    }
    sim_run(&all);
    for (int r = 0; r < size; r++) {
        ck_assert(all.ranks[r].heard == UINT64_MAX >> (64 - size));
        free(all.ranks[r].send);
    }
    sim_finish(&all);
}

PATTERN_TEST(barrier)
{
    check_barrier(size, tsr__dissemination_barrier);
}

/* Hierarchical operations: inside hosts, then between them ------------------------------------ */

static void hierarchical_all_reduce(tsr__schedule *schedule, int size, int rank, uint64_t count,
                                    bool large)
{
    (void)size;
    if (placed[rank].uneven)
        tsr__uneven_all_reduce(schedule, &placed[rank], count, large ? 50 : 0);
    else if (!large)
        tsr__single_leader_all_reduce(schedule, &placed[rank], count);
    else
        tsr__multi_leader_all_reduce(schedule, &placed[rank], count, 50, count % 2 == 0);
}

static void hierarchical_reduce_scatter(tsr__schedule *schedule, int size, int rank,
                                        const tsr__blocks *blocks)
{
    (void)size;
    (placed[rank].uneven ? tsr__uneven_reduce_scatter
                         : tsr__hierarchical_reduce_scatter)(schedule, &placed[rank], blocks);
}

static void hierarchical_all_gather(tsr__schedule *schedule, int size, int rank,
                                    const tsr__blocks *blocks, bool large)
{
    (void)size;
    if (placed[rank].uneven)
        tsr__uneven_all_gather(schedule, &placed[rank], blocks);
    else
        tsr__hierarchical_all_gather(schedule, &placed[rank], blocks, large);
}

static void hierarchical_broadcast(tsr__schedule *schedule, int size, int rank, uint64_t count,
                                   int root, bool large)
{
    (void)size;
    if (placed[rank].uneven)
        tsr__uneven_broadcast(schedule, &placed[rank], count, root);
    else
        tsr__hierarchical_broadcast(schedule, &placed[rank], count, root, large);
}

static void hierarchical_barrier(tsr__schedule *schedule, int size, int rank)
{
    (void)size;
    if (placed[rank].uneven)
        tsr__uneven_barrier(schedule, &placed[rank]);
    else
        tsr__hierarchical_barrier(schedule, &placed[rank], false);
}

static void hierarchical_barrier_of_all(tsr__schedule *schedule, int size, int rank)
{
    (void)size;
    if (placed[rank].uneven)
        tsr__uneven_barrier(schedule, &placed[rank]);
    else
        tsr__hierarchical_barrier(schedule, &placed[rank], true);
}

/* Places the ranks on hosts. Returns whether there are subtrees; all ranks must agree. */
static bool place(int size, const int *host_of, int most)
{
    const bool first = tsr__hierarchy_find(size, 0, host_of, most, &placed[0]);
    for (int r = 0; r < size; r++) {
        ck_assert(tsr__hierarchy_find(size, r, host_of, most, &placed[r]) == first);
        if (!first)
            continue;
        const tsr__hierarchy *hierarchy = &placed[r];
        ck_assert(hierarchy->uneven == placed[0].uneven &&
                  hierarchy->subtrees == placed[0].subtrees);
        ck_assert(hierarchy->uneven || hierarchy->leaves == placed[0].leaves);
        ck_assert(hierarchy->first <= r && r < hierarchy->first + hierarchy->count &&
                  hierarchy->count <= most);
        for (int i = hierarchy->first; i < hierarchy->first + hierarchy->count; i++)
            ck_assert(host_of[i] == host_of[r]);
    }
    return first;
}

/* Runs all hierarchical operations. */
static void check_hierarchical(int size, uint64_t *random)
{
    const uint64_t count = counts[random_between(random, 0, COUNTS - 1)];
    for (unsigned flags = 0; flags < 8; flags++) {
        if (size > 20 && random_between(random, 0, 5) != 0)
            continue;
        tsr__blocks blocks = random_blocks(random, size, random_between(random, 0, 1));
        check_all_reduce(size, count, flags, hierarchical_all_reduce, false);
        check_reduce_scatter(size, &blocks, flags, hierarchical_reduce_scatter, false);
        check_all_gather(size, &blocks, flags, hierarchical_all_gather);
        check_broadcast(size, count, (int)random_between(random, 0, size - 1), flags,
                        hierarchical_broadcast);
    }
    check_barrier(size, hierarchical_barrier);
    check_barrier(size, hierarchical_barrier_of_all);
}

PATTERN_TEST(hierarchical)
{
    uint64_t random = (uint64_t)size;
    int host_of[SIM_RANKS];
    for (int each = 2; each < size; each *= 2) { /* hosts of 2, 4, 8, … ranks */
        for (int r = 0; r < size; r++)
            host_of[r] = r / each;
        const bool even = (size & (size - 1)) == 0;
        const bool can = place(size, host_of, 64);
        ck_assert(can || !even);
        if (even)
            ck_assert_int_eq(placed[0].leaves, each);
        if (can)
            check_hierarchical(size, &random);
    }
    for (int i = 0; i < 4; i++) { /* consecutive ranks on hosts of random sizes */
        host_of[0] = 0;
        for (int r = 1; r < size; r++)
            host_of[r] = host_of[r - 1] + (random_between(&random, 0, 5) == 0);
        if (place(size, host_of, 5 + i * 10))
            check_hierarchical(size, &random);
    }
    for (int i = 0; i < 2; i++) { /* pairs of neighbours and single ranks, each on any of 3 hosts */
        for (int r = 0; r < size; r++)
            host_of[r] = r % 2 && random_between(&random, 0, 3)
                             ? host_of[r - 1]
                             : (int)random_between(&random, 0, 2);
        if (place(size, host_of, 64))
            check_hierarchical(size, &random);
    }
}

/* Checks which ranks share a subtree if the hosts have different numbers of ranks. */
START_TEST(uneven_subtrees)
{
    static const struct {
        const char *hosts, *subtrees; /* ranks of one subtree have the same letter */
    } cases[] = {
        {"aaabbbbb", "aabcdddd"}, {"aabccccc", "aabcdddd"}, {"abbaabba", NULL},
        {"aaab", "aabc"},         {"abbccccc", "abcdeeee"}, {"aabcc", "aabcc"},
        {"aaabbb", "aabcdd"},     {"abaabb", "abccdd"},     {"abbaaa", "abcdee"},
        {"aaaab", "aaabc"},
    };
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        int host_of[8];
        const int size = (int)strlen(cases[c].hosts);
        for (int r = 0; r < size; r++)
            host_of[r] = (unsigned char)cases[c].hosts[r];
        ck_assert(place(size, host_of, 64) == (cases[c].subtrees != NULL));
        for (int r = 0; r < size && cases[c].subtrees; r++) {
            const char *first = strchr(cases[c].subtrees, cases[c].subtrees[r]);
            ck_assert(placed[r].uneven);
            ck_assert_int_eq(placed[r].first, first - cases[c].subtrees);
            ck_assert_int_eq(placed[r].count, (int)strspn(first, (char[]){*first, 0}));
        }
    }
}
END_TEST

START_TEST(no_subtrees)
{
    static const int interleaved[] = {0, 1, 0, 1, 0, 1, 0, 1};
    static const int apart[] = {0, 1, 2, 3, 4, 5, 6, 7}, middle[] = {0, 1, 1, 2};
    ck_assert(!place(8, interleaved, 64));
    ck_assert(!place(8, apart, 64));
    ck_assert(!place(7, interleaved, 64));
    ck_assert(!place(4, middle, 64));
    ck_assert(!place(1, apart, 64));
    ck_assert(!place(2, apart, 64));
}
END_TEST

/* Places the largest job on hosts of 8 ranks, and on hosts of 64 ranks: each host is a subtree
 * of the tree of additions. */
START_TEST(many_ranks)
{
    static int host_of[4096];
    tsr__hierarchy hierarchy;
    for (int each = 8; each <= 64; each *= 8) {
        for (int r = 0; r < 4096; r++)
            host_of[r] = r / each;
        for (int r = 0; r < 4096; r += 577) {
            tsr__schedule schedule = {0};
            const tsr__blocks blocks = {.each = 3};
            ck_assert(tsr__hierarchy_find(4096, r, host_of, 64, &hierarchy));
            ck_assert_int_eq(hierarchy.leaves, each);
            ck_assert_int_eq(hierarchy.first, r / each * each);
            tsr__multi_leader_all_reduce(&schedule, &hierarchy, 1000000, 262144, true);
            tsr__hierarchical_reduce_scatter(&schedule, &hierarchy, &blocks);
            tsr__hierarchical_all_gather(&schedule, &hierarchy, &blocks, true);
            ck_assert(schedule.status == TSR_OK);
            tsr__schedule_finish(&schedule);
        }
    }
}
END_TEST

/* With `large`, an algorithm may take more steps, but the rank that sends most must send fewer
 * bytes. */
START_TEST(large_sends_fewer_bytes)
{
    const uint64_t count = 1 << 20;
    for (int size = 2; size <= 64; size *= 2) {
        for (int large = 0; large < 2; large++) {
            uint64_t most = 0;
            for (int r = 0; r < size; r++) {
                tsr__schedule schedule = {0};
                uint64_t sent = 0;
                flat_all_reduce(&schedule, size, r, count, large);
                for (size_t s = 0; s < schedule.count; s++)
                    sent +=
                        schedule.steps[s].kind == TSR__STEP_SEND ? schedule.steps[s].from.count : 0;
                most = sent > most ? sent : most;
                tsr__schedule_finish(&schedule);
            }
            uint64_t rounds = 0;
            for (int n = size; n > 1; n /= 2)
                rounds++;
            ck_assert_uint_eq(most, large ? 2 * count / (uint64_t)size * (uint64_t)(size - 1)
                                          : rounds * count);
        }
    }
}
END_TEST

/* Checks which algorithm is chosen: the schedule must equal that of the algorithm. */
static bool same_steps(const tsr__schedule *a, const tsr__schedule *b)
{
    bool same = a->count == b->count && a->temp_count == b->temp_count;
    for (size_t i = 0; i < a->count && same; i++) {
        const tsr__step *x = &a->steps[i], *y = &b->steps[i];
        same = x->kind == y->kind && x->round == y->round && x->peer == y->peer &&
               x->inner == y->inner && x->from.start == y->from.start &&
               x->from.count == y->from.count && x->to.start == y->to.start &&
               x->to.count == y->to.count;
    }
    return same;
}

static void check_choice(const tsr__collective *wanted, tsr__schedule *expected_schedule)
{
    tsr__schedule chosen = {0};
    const bool is_hierarchical = tsr__choose_schedule(&chosen, wanted);
    ck_assert(is_hierarchical == (wanted->hierarchy != NULL && !wanted->exact));
    ck_assert(same_steps(&chosen, expected_schedule));
    tsr__schedule_finish(&chosen);
    tsr__schedule_finish(expected_schedule);
}

START_TEST(choices)
{
    static const int two_hosts[] = {0, 0, 1, 1}, in_turn[] = {0, 1, 0, 1}, one_host[4];
    tsr__hierarchy hierarchy;
    tsr__schedule expected_schedule = {0};
    ck_assert(tsr__choose_topology(4, 1, one_host, 64, &hierarchy) == TSR__TOPOLOGY_SHARED);
    ck_assert(tsr__choose_topology(1, 0, one_host, 64, &hierarchy) == TSR__TOPOLOGY_FLAT);
    ck_assert(tsr__choose_topology(4, 1, in_turn, 64, &hierarchy) == TSR__TOPOLOGY_FLAT);
    ck_assert(tsr__choose_topology(4, 1, two_hosts, 64, &hierarchy) == TSR__TOPOLOGY_HIERARCHICAL);
    ck_assert(tsr__choose_one_round(16384) && !tsr__choose_one_round(16385));
    ck_assert(tsr__choose_shared_memory(TSR__CALL_BARRIER));
    ck_assert(!tsr__choose_shared_memory(TSR__CALL_GATHER_V));

    tsr__collective summed = {
        .kind = TSR__CALL_ALL_REDUCE, .size = 4, .rank = 1, .element_bytes = 4};
    summed.count = 4095;
    tsr__recursive_doubling_all_reduce(&expected_schedule, 4, 1, summed.count);
    check_choice(&summed, &expected_schedule);
    summed.count = 4096;
    tsr__rabenseifner_all_reduce(&expected_schedule, 4, 1, summed.count);
    check_choice(&summed, &expected_schedule);
    summed.exact = true;
    tsr__exact_all_reduce_two_rounds(&expected_schedule, 4, 1, summed.count);
    check_choice(&summed, &expected_schedule);
    summed.exact = false;
    summed.hierarchy = &hierarchy;
    summed.count = 1024; /* 4 KiB on 4 ranks on 2 hosts */
    tsr__multi_leader_all_reduce(&expected_schedule, &hierarchy, summed.count, 65536, false);
    check_choice(&summed, &expected_schedule);

    const tsr__blocks blocks = {.each = 4096};
    tsr__collective gathered = {
        .kind = TSR__CALL_ALL_GATHER, .size = 4, .rank = 1, .element_bytes = 4, .blocks = &blocks};
    tsr__recursive_doubling_all_gather(&expected_schedule, 4, 1, &blocks);
    check_choice(&gathered, &expected_schedule);
    gathered.size = 5;
    tsr__ring_all_gather(&expected_schedule, 5, 1, &blocks);
    check_choice(&gathered, &expected_schedule);

    tsr__collective spread = {.kind = TSR__CALL_BROADCAST,
                              .size = 4,
                              .rank = 1,
                              .count = 16383,
                              .element_bytes = 4,
                              .peer = 2};
    tsr__binomial_broadcast(&expected_schedule, 4, 1, spread.count, 2);
    check_choice(&spread, &expected_schedule);
    spread.count++;
    tsr__van_de_geijn_broadcast(&expected_schedule, 4, 1, spread.count, 2);
    check_choice(&spread, &expected_schedule);
}
END_TEST

START_TEST(too_much_memory)
{
    tsr__schedule schedule = {0};
    tsr__exact_all_reduce_one_round(&schedule, 3, 0, UINT64_MAX / 2 + 1);
    ck_assert_error(schedule.status, TSR_ERR_OVERFLOW,
                    "comm: 2 times 9223372036854775808 temporary elements are too many");
    tsr__schedule_finish(&schedule);
}
END_TEST

TESTS(patterns)
{
    tcase_add_loop_test(tests, all_reduce, 0, SIM_RANKS / 8);
    tcase_add_loop_test(tests, reduce, 0, SIM_RANKS / 8);
    tcase_add_loop_test(tests, reduce_scatter, 0, SIM_RANKS / 8);
    tcase_add_loop_test(tests, all_gather, 0, SIM_RANKS / 8);
    tcase_add_loop_test(tests, broadcast, 0, SIM_RANKS / 8);
    tcase_add_loop_test(tests, gather_and_scatter, 0, SIM_RANKS / 8);
    tcase_add_loop_test(tests, all_to_all, 0, SIM_RANKS / 8);
    tcase_add_loop_test(tests, barrier, 0, SIM_RANKS / 8);
    tcase_add_loop_test(tests, hierarchical, 0, SIM_RANKS / 8);
    tcase_add_test(tests, uneven_subtrees);
    tcase_add_test(tests, no_subtrees);
    tcase_add_test(tests, many_ranks);
    tcase_add_test(tests, large_sends_fewer_bytes);
    tcase_add_test(tests, choices);
    tcase_add_test(tests, too_much_memory);
}
