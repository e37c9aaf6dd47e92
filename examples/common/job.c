#include "common/job.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Returns a variable's value, or NULL if it is not set or empty. */
static char *variable(const char *name)
{
    char *value = getenv(name);
    return value && *value ? value : NULL;
}

bool job_is_joining(void)
{
    const char *boot = variable("TESSERA_BOOT");
    return boot && strcmp(boot, "join") == 0;
}

static bool is_launched(void)
{
    return variable("RANK") || variable("PMIX_RANK") || job_is_joining();
}

#define HEAD 6 /* the number of words of "tessera launch -n N --keep-going --" */

bool job_launch(const example_job_params *params, char **argv)
{
    if (params->ranks < 2 || is_launched())
        return true;
    char count[16], usual[] = "tessera", launch[] = "launch", n[] = "-n", end[] = "--",
                    keep_going[] = "--keep-going";
    char *tool = variable("TESSERA_TOOL");
    char *const head[] = {tool ? tool : usual, launch, n, count, keep_going, end};
    int own = 0;
    while (argv[own])
        own++;
    char **command = calloc((size_t)own + HEAD + 1, sizeof *command);
    if (!command) {
        fprintf(stderr, "%s: out of memory\n", params->program);
        return false;
    }
    snprintf(count, sizeof count, "%d", params->ranks);
    int used = 0;
    for (int i = 0; i < HEAD; i++)
        if (params->elastic || head[i] != keep_going)
            command[used++] = head[i];
    memcpy(command + used, argv, (size_t)own * sizeof *command);
    execvp(command[0], command);
    fprintf(stderr,
            "%s: %s: %s; --ranks needs the tool tessera in PATH, or TESSERA_TOOL to say where "
            "it is\n",
            params->program, command[0], strerror(errno));
    free(command);
    return false;
}

/* Reports to the launcher -------------------------------------------------------------------- */

/* The pipe for reports, and what each report begins with. */
typedef struct launcher {
    int pipe; /* −1: there is no launcher */
    char number[16];
} launcher;

/* Finds the launcher. A program between it and this process may have closed its pipe, so that the
 * descriptor is now that of another file. */
static launcher find_launcher(void)
{
    launcher found = {.pipe = -1};
    const char *text = variable("TESSERA_LAUNCH");
    unsigned long long inode;
    struct stat file;
    int fd;
    if (text && sscanf(text, "%d:%llu:%15[0-9]", &fd, &inode, found.number) == 3 &&
        fstat(fd, &file) == 0 && file.st_ino == inode)
        found.pipe = fd;
    return found;
}

void job_report(const char *format, ...)
{
    char what[128], line[160];
    va_list arguments;
    const launcher to = find_launcher();
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    const int length = snprintf(line, sizeof line, "%s %s\n", to.number, what);
    if (to.pipe >= 0)
        (void)!write(to.pipe, line, (size_t)length);
}

/* Elastic jobs ------------------------------------------------------------------------------- */

int job_first_row(const example_job *self)
{
    return (int)((int64_t)self->batch * self->data_rank / self->data);
}

int job_rows(const example_job *self)
{
    return (int)((int64_t)self->batch * (self->data_rank + 1) / self->data) - job_first_row(self);
}

/* Connects the ranks of `world`, all of which call it. */
static tsr_status use_world(example_job *self, tsr_comm *world)
{
    self->world = world;
    self->rank = self->data_rank = tsr_comm_rank(world);
    self->ranks = self->data = tsr_comm_size(world);
    TRY(tsr_comm_duplicate(world, &self->data_comm));
    return tsr_group_create(self->data_comm, self->stream, NULL, &self->data_group);
}

static tsr_status change_world(example_job *self, tsr_comm *world)
{
    if (!self->old_data_group)
        self->old_data_group = self->data_group;
    else
        tsr_group_destroy(&self->data_group);
    self->data_group = NULL;
    tsr_comm_destroy(&self->data_comm);
    tsr_comm_destroy(&self->world);
    return use_world(self, world);
}

bool job_has_lost(tsr_status status)
{
    return status == TSR_ERR_PEER_LOST || status == TSR_ERR_TIMEOUT;
}

tsr_status job_shrink(example_job *self, bool *again)
{
    tsr_comm *smaller;
    TRY(tsr_comm_shrink(self->world, NULL, &smaller));
    tsr_status status = change_world(self, smaller);
    *again = job_has_lost(status);
    return *again ? TSR_OK : status;
}

tsr_status job_grow(example_job *self, int count, bool *grown)
{
    tsr_comm *larger;
    const tsr_comm_grow_params *params =
        tsr_comm_grow_params(.count = count, .timeout_ns = 50000000);
    *grown = tsr_comm_grow(self->world, params, &larger) == TSR_OK;
    /* If no process has joined, which is the usual case, the call fails but the job goes on. */
    return *grown ? change_world(self, larger) : tsr_comm_status(self->world);
}

void job_settle(example_job *self)
{
    tsr_group_destroy(&self->old_data_group);
}

/* Goes on like any other rank if others are lost while this process, which has joined, connects. */
static tsr_status settle_in(example_job *self, tsr_status status)
{
    bool again = job_has_lost(status);
    while (again)
        TRY(job_shrink(self, &again));
    return job_has_lost(status) ? TSR_OK : status;
}

/* Sets up an elastic job, in which all ranks are data-parallel. stage_comm and tensor_group contain
 * only this rank, so they stay valid when other ranks are lost or join. */
static tsr_status init_elastic(example_job *self)
{
    tsr_comm *world = self->world;
    self->world = NULL;
    self->tensor = self->context = self->stages = 1;
    self->joined = job_is_joining();
    tsr_status status =
        tsr_comm_create(tsr_comm_params(.bootstrap = TSR_BOOTSTRAP_SINGLE), &self->stage_comm);
    if (status == TSR_OK)
        status = tsr_group_create(NULL, self->stream, NULL, &self->tensor_group);
    if (status != TSR_OK) {
        tsr_comm_destroy(&world);
        return status;
    }
    status = use_world(self, world);
    return self->joined ? settle_in(self, status) : status;
}

/* Every job ---------------------------------------------------------------------------------- */

static bool choose_grid(example_job *self, const example_job_params *params, char error[256])
{
    self->stages = params->stages ? params->stages : 1;
    self->context = params->context ? params->context : 1;
    self->data = params->data ? params->data : 1;
    const int each = self->ranks / (self->data * self->context * self->stages);
    self->tensor = params->tensor ? params->tensor : each > 0 ? each : 1;
    const int64_t grid = (int64_t)self->data * self->context * self->tensor;
    if (params->ranks && params->ranks != self->ranks)
        snprintf(error, 256, "--ranks %d, but %d were launched", params->ranks, self->ranks);
    else if (self->context > 1 && grid * self->stages != self->ranks)
        snprintf(error, 256,
                 "a grid of %dx%d with %d context ranks, %d time%s, has %lld ranks, but there are "
                 "%d",
                 self->data, self->tensor, self->context, self->stages,
                 self->stages == 1 ? "" : "s", (long long)grid * self->stages, self->ranks);
    else if (self->stages > 1 && grid * self->stages != self->ranks)
        snprintf(
            error, 256, "a grid of %dx%d in each of %d stages has %lld ranks, but there are %d",
            self->data, self->tensor, self->stages, (long long)grid * self->stages, self->ranks);
    else if (grid * self->stages != self->ranks)
        snprintf(error, 256, "a grid of %dx%d has %lld ranks, but there are %d", self->data,
                 self->tensor, (long long)grid, self->ranks);
    return *error == '\0';
}

tsr_status job_use_batch(example_job *self, int batch, char error[256])
{
    *error = '\0';
    self->batch = batch;
    if (self->is_elastic && batch < self->ranks)
        snprintf(error, 256, "a batch of %d does not divide over %d ranks", batch, self->ranks);
    else if (!self->is_elastic && batch % self->data != 0)
        snprintf(error, 256, "a batch of %d does not divide over %d rows of the grid", batch,
                 self->data);
    return *error ? TSR_ERR_INVALID : TSR_OK;
}

/* Creates the group of the ranks of `world` with the same color, in the order of keys. */
static tsr_status create_group(example_job *self, int color, int key, tsr_dtype wire,
                               tsr_group **out)
{
    tsr_comm *comm = NULL;
    TRY(tsr_comm_split(self->world, color, key, &comm));
    const tsr_status status =
        tsr_group_create(comm, self->stream, tsr_group_params(.wire = wire), out);
    tsr_comm_destroy(&comm);
    return status;
}

tsr_status job_init(example_job *self, const example_job_params *params, char error[256])
{
    *self = (example_job){0};
    *error = '\0';
    TRY(tsr_comm_create(tsr_comm_params(.timeout_ns = (uint64_t)(params->timeout_seconds * 1e9)),
                        &self->world));
    self->rank = tsr_comm_rank(self->world);
    self->ranks = tsr_comm_size(self->world);
    self->is_elastic = params->elastic;
    if (!params->elastic && !choose_grid(self, params, error))
        return TSR_ERR_INVALID;
    if (params->batch)
        TRY(job_use_batch(self, params->batch, error));
    TRY(tsr_device_open(tsr_device_params(.device = params->device), &self->device));
    TRY(tsr_stream_create(self->device, &self->stream));
    if (params->elastic)
        return init_elastic(self);
    const int rows = self->data * self->context, grid = rows * self->tensor,
              place = self->rank % grid, row = place / self->tensor;
    self->stage = self->rank / grid;
    self->data_rank = row / self->context;
    self->context_rank = row % self->context;
    self->tensor_rank = place % self->tensor;
    TRY(tsr_comm_split(self->world, place, self->stage, &self->stage_comm));
    TRY(tsr_comm_split(self->world, self->stage * self->tensor + self->tensor_rank, row,
                       &self->data_comm));
    TRY(tsr_group_create(self->data_comm, self->stream, NULL, &self->data_group));
    if (self->context > 1)
        TRY(create_group(
            self, (self->stage * self->data + self->data_rank) * self->tensor + self->tensor_rank,
            self->context_rank, 0, &self->context_group));
    return create_group(self, self->stage * rows + row, self->tensor_rank, params->wire,
                        &self->tensor_group);
}

void job_finish(example_job *self)
{
    tsr_group_destroy(&self->tensor_group);
    tsr_group_destroy(&self->context_group);
    tsr_group_destroy(&self->data_group);
    tsr_group_destroy(&self->old_data_group);
    tsr_stream_destroy(&self->stream);
    tsr_device_close(&self->device);
    tsr_comm_destroy(&self->data_comm);
    tsr_comm_destroy(&self->stage_comm);
    tsr_comm_destroy(&self->world);
}
