/* Checkpoints in parts: ranks on several hosts, each with a folder of its own. */
#define _DEFAULT_SOURCE /* for syscall */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fault.h"
#include "checkpoint/hosts.h"
#include "comm/ranks.h"
#include "tessera/shard.h"

/* What the ranks of a job do. */
typedef struct plan {
    const char *hosts;  /* the host of each rank */
    const char *folder; /* the folder that all ranks use; NULL: that of its host */
    int load, save;     /* first the version to load, then the version to save; -1: none */
} plan;

static const char *path_of(const plan *p, int rank)
{
    return on_host(p->folder ? p->folder : (const char[]){p->hosts[rank], '\0'}, "model");
}

static tsr_status save(const plan *p, tsr_comm *comm, int version)
{
    static hosts_model model;
    char text[16];
    hosts_model_init(&model, tsr_comm_rank(comm), tsr_comm_size(comm), version);
    snprintf(text, sizeof text, "%d", version);
    return tsr_checkpoint_save(
        path_of(p, tsr_comm_rank(comm)), comm, NULL, HOSTS_TENSORS, model.entries,
        tsr_checkpoint_params(.parts = true, .metadata = (const char *[]){"version", text, NULL}));
}

/* Loads the checkpoint that exists, and returns its version. */
static int load(const plan *p, tsr_comm *comm, int highest)
{
    static hosts_model model;
    char text[16];
    const int rank = tsr_comm_rank(comm), size = tsr_comm_size(comm);
    const char *path = path_of(p, rank);
    hosts_model_init(&model, rank, size, 0);
    hosts_model_clear(&model);
    need_ok(tsr_checkpoint_load(path, comm, NULL, HOSTS_TENSORS, model.entries,
                                tsr_checkpoint_params(.parts = true, .strict = true)));
    need_ok(tsr_checkpoint_metadata(path, comm, tsr_checkpoint_params(.parts = true), "version",
                                    sizeof text, text));
    const int version = hosts_model_version(&model, rank, size, highest);
    need(version >= 0 && version == atoi(text));
    return version;
}

static void follow(tsr_comm *comm, void *user)
{
    const plan *p = user;
    if (p->load >= 0)
        need(load(p, comm, p->load) == p->load);
    if (p->save >= 0)
        need_ok(save(p, comm, p->save));
}

static void run(plan p)
{
    ranks_run(
        &(ranks_job){.size = (int)strlen(p.hosts), .hosts = p.hosts, .run = follow, .user = &p});
}

START_TEST(any_other_ranks_load_it)
{
    run((plan){.hosts = "aabb", .load = -1, .save = 3});
    ck_assert_int_eq(hosts_files("a"), 3);
    ck_assert_int_eq(hosts_files("b"), 3);
    run((plan){.hosts = "abc", .load = 3, .save = -1}); /* the rank on host c has no part */
    run((plan){.hosts = "caab", .load = 3, .save = -1});
    hosts_copy("a", "all");
    hosts_copy("b", "all");
    run((plan){.hosts = "a", .folder = "all", .load = 3, .save = -1});
    run((plan){.hosts = "aab", .folder = "all", .load = 3, .save = -1});
    /* The next checkpoint has another number of parts. It replaces the files on the hosts that its
     * ranks use. */
    run((plan){.hosts = "aab", .load = 3, .save = 4});
    ck_assert_int_eq(hosts_files("a"), 3);
    ck_assert_int_eq(hosts_files("b"), 2);
    run((plan){.hosts = "ab", .load = 4, .save = -1});
}
END_TEST

static void read_one_file(tsr_comm *comm, void *user)
{
    (void)user;
    const int rank = tsr_comm_rank(comm);
    char text[16];
    need_ok(
        tsr_checkpoint_metadata(on_host("all", "one"), comm, NULL, "version", sizeof text, text));
    need(strcmp(text, "7") == 0);
    /* The ranks fail together. */
    const tsr_status status = tsr_checkpoint_metadata(on_host("all", rank == 1 ? "none" : "one"),
                                                      comm, NULL, "version", sizeof text, text);
    need(status == TSR_ERR_NOT_FOUND);
    need(strstr(tsr_last_error(), rank == 1 ? "checkpoint_metadata: " : "rank 1: ") != NULL);
}

START_TEST(metadata_of_one_file)
{
    const char *const metadata[] = {"version", "7", NULL};
    static hosts_model model;
    hosts_model_init(&model, 0, 1, 1);
    ck_assert_ok(tsr_checkpoint_save(on_host("all", "one"), NULL, NULL, HOSTS_TENSORS,
                                     model.entries, tsr_checkpoint_params(.metadata = metadata)));
    ranks_run(&(ranks_job){.size = 2, .run = read_one_file});
}
END_TEST

/* Other programs can read each file, and an index with all files in one folder. */
START_TEST(other_programs_read_it)
{
    run((plan){.hosts = "aabb", .load = -1, .save = 1});
    tsr_shard_list *list = NULL;
    ck_assert_ok(tsr_shard_list_open(on_host("a", "model-00002-of-00004.safetensors"), &list));
    ck_assert_uint_eq(tsr_shard_list_param_count(list), 3);
    const tsr_shard_param *param = tsr_shard_list_param(list, 0);
    ck_assert_str_eq(param->name, "rows[3:6]");
    ck_assert_int_eq(param->shape[0], 3);
    ck_assert_int_eq(param->shape[1], 7);
    param = tsr_shard_list_param(list, 1);
    ck_assert_str_eq(param->name, "ranges.flat[38:76]");
    param = tsr_shard_list_param(list, 2);
    ck_assert_str_eq(param->name, "columns[:,2:5]");
    ck_assert_int_eq(param->shape[1], 3);
    tsr_shard_list_destroy(&list);
    hosts_copy("b", "a");
    ck_assert_ok(tsr_shard_list_open(on_host("a", "model.safetensors.index.json"), &list));
    ck_assert_int_eq(tsr_shard_list_format(list), TSR_SHARD_INDEX);
    ck_assert_uint_eq(tsr_shard_list_param_count(list), 3 * 4 + 4);
    tsr_shard_list_destroy(&list);
}
END_TEST

/* If all hosts share a folder, all ranks see all parts. */
START_TEST(a_shared_folder)
{
    run((plan){.hosts = "aabb", .folder = "all", .load = -1, .save = 1});
    run((plan){.hosts = "aabb", .folder = "all", .load = 1, .save = 2});
    ck_assert_int_eq(hosts_files("all"), 5);
    run((plan){.hosts = "abc", .folder = "all", .load = 2, .save = 3});
    ck_assert_int_eq(hosts_files("all"), 4);
    run((plan){.hosts = "ab", .folder = "all", .load = 3, .save = -1});
}
END_TEST

/* On one rank, each system call that writes fails in turn. */
static void full_disk(tsr_comm *comm, void *user)
{
    const plan *p = user;
    const int rank = tsr_comm_rank(comm);
    int version = 0, late = 0;
    need_ok(save(p, comm, version));
    for (uint64_t nth = 0;; nth++) {
        /* Rank 2 is the first rank on its host, so it writes an index. */
        if (rank == 2)
            tsr__fault_arm(TSR__FAULT_IO, nth, ENOSPC);
        const tsr_status status = save(p, comm, version + 1);
        tsr__fault_disarm();
        if (status == TSR_OK)
            break;
        need_error(status, TSR_ERR_IO, "No space left on device");
        need(rank == 2 || strstr(tsr_last_error(), "checkpoint_save: rank 2: "));
        const int now = load(p, comm, version + 1);
        need(now == version || now == version + 1);
        /* Either the new checkpoint is complete, and only writing the index has failed … */
        late += now == version + 1;
        /* … or the old files have their names again, and there are no other files. */
        need(now > version || (hosts_files("a") == 3 && hosts_files("b") == 2));
        version = now;
        need(nth < 40 && late <= 3);
    }
    need(load(p, comm, version + 1) == version + 1);
}

START_TEST(a_disk_is_full)
{
    plan p = {.hosts = "aab"};
    ranks_run(&(ranks_job){.size = 3, .hosts = p.hosts, .run = full_disk, .user = &p});
    ck_assert_int_eq(hosts_files("a"), 3);
    ck_assert_int_eq(hosts_files("b"), 2);
}
END_TEST

/* Killed ranks --------------------------------------------------------------------------------- */

/* These functions replace those of the C library in this program. A rank dies instead of making its
 * call number `deadly`. */
static int calls, deadly = -1;

static void maybe_die(void)
{
    if (calls++ == deadly)
        kill(getpid(), SIGKILL);
}

int rename(const char *from, const char *to)
{
    maybe_die();
    return (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

int fsync(int descriptor)
{
    maybe_die();
    return (int)syscall(SYS_fsync, descriptor);
}

int unlink(const char *path)
{
    maybe_die();
    return (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0);
}

typedef struct killing {
    plan p;
    bool again;    /* dies at the previous round's call, and saves nothing before that */
    int call;      /* the call at which rank 2 dies, in odd rounds also rank 1 */
    int complete;  /* the newest version that is known to be complete; -1: none */
    int attempted; /* the newest version that ranks have begun to save */
} killing;

/* What the ranks of a round report to the test. */
typedef struct told {
    _Atomic int survived, complete;
} told;

static bool dies(const killing *k, int rank)
{
    return rank == 2 || (rank == 1 && k->call % 2 == 1);
}

/* Loads the checkpoint that the previous round has left, and dies while saving the next one. Unless
 * `again` is set, it saves one checkpoint without a failure before that. */
static void load_save_and_die(tsr_comm *comm, void *user)
{
    const killing *k = user;
    told *tell = ranks_shared();
    int complete = -1;
    if (k->attempted >= 0) {
        complete = load(&k->p, comm, k->attempted);
        need(complete >= k->complete);
    }
    if (!k->again) {
        complete = k->attempted + 1;
        need_ok(save(&k->p, comm, complete));
        need(load(&k->p, comm, complete) == complete);
    }
    atomic_store(&tell->complete, complete);
    calls = 0;
    deadly = dies(k, tsr_comm_rank(comm)) ? k->call : -1;
    const tsr_status status = save(&k->p, comm, k->attempted + 2);
    deadly = -1;
    if (tsr_comm_rank(comm) == 2)
        atomic_store(&tell->survived, 1);
    need(status == TSR_OK || status == TSR_ERR_PEER_LOST);
}

/* One or two ranks are killed at each call in turn. */
START_TEST(ranks_are_killed_at_each_call)
{
    killing k = {.p = {.hosts = "aab"}, .complete = -1, .attempted = -1};
    bool survived = false;
    while (!survived) {
        ck_assert_int_lt(k.call, 40);
        ranks_start(
            &(ranks_job){.size = 3, .hosts = k.p.hosts, .run = load_save_and_die, .user = &k});
        ranks_wait();
        const told *tell = ranks_shared();
        survived = tell->survived;
        for (int r = 0; r < 3; r++)
            if (!dies(&k, r))
                ranks_check(r);
        k.complete = tell->complete;
        k.attempted += 2;
        /* From call 5 on, ranks rename files, so each of these calls fails in two rounds. */
        k.again = !k.again && k.call >= 5 && k.call <= 8;
        k.call += !k.again;
    }
    ck_assert_int_gt(k.call, 8);
    run((plan){.hosts = "aab", .load = -1, .save = k.attempted + 1});
    ck_assert_int_eq(hosts_files("a"), 3);
    ck_assert_int_eq(hosts_files("b"), 2);
}
END_TEST

TESTS(hosts)
{
    tcase_set_timeout(tests, 300);
    tcase_add_checked_fixture(tests, hosts_make, hosts_remove);
    tcase_add_test(tests, any_other_ranks_load_it);
    tcase_add_test(tests, metadata_of_one_file);
    tcase_add_test(tests, other_programs_read_it);
    tcase_add_test(tests, a_shared_folder);
    tcase_add_test(tests, a_disk_is_full);
    tcase_add_test(tests, ranks_are_killed_at_each_call);
}
