/* The environment of a job's processes: the variables with which the processes find each other. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cli/launch/launch.h"
#include "cli/lib/memory.h"

extern char **environ;

/* Reserves a port on loopback. The kernel does not give this port to any other process that asks
 * for a free port. Rank 0 can still bind the port, because both sockets set SO_REUSEADDR and this
 * one does not listen. */
static bool reserve_port(int *fd, int *port)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t size = sizeof address;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    *fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (*fd < 0 || setsockopt(*fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int)) != 0 ||
        bind(*fd, (struct sockaddr *)&address, sizeof address) != 0 ||
        getsockname(*fd, (struct sockaddr *)&address, &size) != 0)
        return false;
    *port = ntohs(address.sin_port);
    return true;
}

/* Writes 2·size hexadecimal digits and a terminating 0. */
static void write_hex(const unsigned char *bytes, size_t size, char *out)
{
    for (size_t i = 0; i < size; i++)
        snprintf(out + 2 * i, 3, "%02x", bytes[i]);
}

bool launch_env_init(launch_env *env, int ranks, const launch_devices *devices)
{
    unsigned char random[sizeof env->token / 2 + sizeof env->job_id / 2];
    *env = (launch_env){.sockets = {-1, -1}, .devices = devices, .ranks = ranks};
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        return false;
    write_hex(random, sizeof env->token / 2, env->token);
    write_hex(random + sizeof env->token / 2, sizeof env->job_id / 2, env->job_id);
    return reserve_port(&env->sockets[0], &env->ports[0]) &&
           reserve_port(&env->sockets[1], &env->ports[1]);
}

void launch_env_finish(launch_env *env)
{
    for (int i = 0; i < 2; i++)
        if (env->sockets[i] >= 0)
            close(env->sockets[i]);
}

/* Variables that the ranks do not inherit. The launcher sets some of them itself. An outer launcher
 * may have set the others for its own ranks. */
static const char *const replaced[] = {
    "RANK",           "WORLD_SIZE",   "LOCAL_RANK",          "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",    "MASTER_PORT",  "TESSERA_MASTER_PORT", "TESSERA_TOKEN",
    "TESSERA_JOB_ID", "TESSERA_BOOT", "TESSERA_LAUNCH",      "TESSERA_RESTART",
    "PMIX_NAMESPACE", "PMIX_RANK",    "TORCHELASTIC_RUN_ID", "TORCHELASTIC_USE_AGENT_STORE",
};

static bool has_name(const char *variable, const char *name)
{
    size_t length = strlen(name);
    return strncmp(variable, name, length) == 0 && variable[length] == '=';
}

static bool is_replaced(const launch_env *env, const char *variable)
{
    for (size_t i = 0; i < sizeof replaced / sizeof replaced[0]; i++)
        if (has_name(variable, replaced[i]))
            return true;
    return env->devices->count > 0 && has_name(variable, "TESSERA_DEVICE");
}

char **launch_env_of_rank(const launch_env *env, int rank, bool joins, int serial)
{
    char own[1024];
    int device = env->devices->count > 0 ? env->devices->indices[rank % env->devices->count] : 0;
    int length = 0;
    if (!joins)
        length = snprintf(own, sizeof own,
                          "RANK=%d\nWORLD_SIZE=%d\nLOCAL_RANK=%d\nLOCAL_WORLD_SIZE=%d\n", rank,
                          env->ranks, rank, env->ranks);
    length += snprintf(own + length, sizeof own - (size_t)length,
                       "MASTER_ADDR=127.0.0.1\nMASTER_PORT=%d\nTESSERA_MASTER_PORT=%d\n"
                       "TESSERA_TOKEN=%s\nTESSERA_JOB_ID=launch-%s\nTESSERA_BOOT=%s\n"
                       "TESSERA_LAUNCH=%d:%" PRIu64 ":%d\n",
                       env->ports[0], env->ports[1], env->token, env->job_id,
                       joins ? "join" : "env", env->report_fd, env->report_inode, serial);
    if (env->restart[0] != '\0')
        length += snprintf(own + length, sizeof own - (size_t)length, "TESSERA_RESTART=%s\n",
                           env->restart);
    if (env->devices->count > 0)
        length +=
            snprintf(own + length, sizeof own - (size_t)length, "TESSERA_DEVICE=%d\n", device);

    size_t kept = 0, most = 16; /* the largest number of new variables */
    while (environ[kept] != NULL)
        kept++;
    /* One block of memory contains the array of pointers and, after it, the new variables. */
    char **all = cli_alloc((kept + most) * sizeof *all + (size_t)length + 1, 1);
    char *text = (char *)(all + kept + most);
    memcpy(text, own, (size_t)length + 1);
    size_t count = 0;
    for (size_t i = 0; i < kept; i++)
        if (!is_replaced(env, environ[i]))
            all[count++] = environ[i];
    for (char *end; (end = strchr(text, '\n')) != NULL; text = end + 1) {
        *end = '\0';
        all[count++] = text;
    }
    return all;
}
