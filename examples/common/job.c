#include "common/job.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Returns a variable's value, or NULL if it is not set or empty. */
static char *variable(const char *name)
{
    char *value = getenv(name);
    return value && *value ? value : NULL;
}

static bool is_launched(void)
{
    return variable("RANK") || variable("PMIX_RANK");
}

#define HEAD 5 /* words of "tessera launch -n N --" */

bool job_launch(const example_job_params *params, char **argv)
{
    if (params->ranks < 2 || is_launched())
        return true;
    char count[16], usual[] = "tessera", launch[] = "launch", n[] = "-n", end[] = "--";
    char *tool = variable("TESSERA_TOOL");
    char *const head[] = {tool ? tool : usual, launch, n, count, end};
    int own = 0;
    while (argv[own])
        own++;
    char **command = calloc((size_t)own + HEAD + 1, sizeof *command);
    if (!command) {
        fprintf(stderr, "%s: out of memory\n", params->program);
        return false;
    }
    snprintf(count, sizeof count, "%d", params->ranks);
    memcpy(command, head, sizeof head);
    memcpy(command + HEAD, argv, (size_t)own * sizeof *command);
    execvp(command[0], command);
    fprintf(stderr,
            "%s: %s: %s; --ranks needs the tool tessera in PATH, or TESSERA_TOOL to say where "
            "it is\n",
            params->program, command[0], strerror(errno));
    free(command);
    return false;
}

static bool choose_grid(example_job *self, const example_job_params *params, char error[256])
{
    self->stages = params->stages ? params->stages : 1;
    self->data = params->data ? params->data : 1;
    const int each = self->ranks / (self->data * self->stages);
    self->tensor = params->tensor ? params->tensor : each > 0 ? each : 1;
    const int64_t grid = (int64_t)self->data * self->tensor;
    if (params->ranks && params->ranks != self->ranks)
        snprintf(error, 256, "--ranks %d, but %d were launched", params->ranks, self->ranks);
    else if (self->stages > 1 && grid * self->stages != self->ranks)
        snprintf(
            error, 256, "a grid of %dx%d in each of %d stages has %lld ranks, but there are %d",
            self->data, self->tensor, self->stages, (long long)grid * self->stages, self->ranks);
    else if (grid * self->stages != self->ranks)
        snprintf(error, 256, "a grid of %dx%d has %lld ranks, but there are %d", self->data,
                 self->tensor, (long long)grid, self->ranks);
    else if (params->batch % self->data != 0)
        snprintf(error, 256, "a batch of %d does not divide over %d rows of the grid",
                 params->batch, self->data);
    return *error == '\0';
}

tsr_status job_init(example_job *self, const example_job_params *params, char error[256])
{
    tsr_comm *row = NULL;
    *self = (example_job){0};
    *error = '\0';
    TRY(tsr_comm_create(tsr_comm_params(.timeout_ns = (uint64_t)(params->timeout_seconds * 1e9)),
                        &self->world));
    self->rank = tsr_comm_rank(self->world);
    self->ranks = tsr_comm_size(self->world);
    if (!choose_grid(self, params, error))
        return TSR_ERR_INVALID;
    const int grid = self->data * self->tensor, place = self->rank % grid;
    self->stage = self->rank / grid;
    self->data_rank = place / self->tensor;
    self->tensor_rank = place % self->tensor;
    TRY(tsr_device_open(tsr_device_params(.device = params->device), &self->device));
    TRY(tsr_stream_create(self->device, &self->stream));
    TRY(tsr_comm_split(self->world, place, self->stage, &self->stage_comm));
    TRY(tsr_comm_split(self->world, self->stage * self->tensor + self->tensor_rank, self->data_rank,
                       &self->data_comm));
    TRY(tsr_group_create(self->data_comm, self->stream, NULL, &self->data_group));
    TRY(tsr_comm_split(self->world, self->stage * self->data + self->data_rank, self->tensor_rank,
                       &row));
    tsr_status status = tsr_group_create(row, self->stream, tsr_group_params(.wire = params->wire),
                                         &self->tensor_group);
    tsr_comm_destroy(&row);
    return status;
}

void job_finish(example_job *self)
{
    tsr_group_destroy(&self->tensor_group);
    tsr_group_destroy(&self->data_group);
    tsr_stream_destroy(&self->stream);
    tsr_device_close(&self->device);
    tsr_comm_destroy(&self->data_comm);
    tsr_comm_destroy(&self->stage_comm);
    tsr_comm_destroy(&self->world);
}
