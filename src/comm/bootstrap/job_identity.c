#include "comm/bootstrap/job_identity.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/environment.h"

static void read_slurm(const tsr__identity *identity, char *text, size_t size)
{
    const char *het_job = tsr__env_text("SLURM_HET_JOB_ID"), *job = tsr__env_text("SLURM_JOB_ID");
    const char *step = identity->torchrun == NULL ? tsr__env_text("SLURM_STEP_ID") : NULL;
    if (het_job != NULL)
        job = het_job;
    if (job != NULL)
        snprintf(text, size, "%.32s%s%.32s", job, step != NULL ? "." : "",
                 step != NULL ? step : "");
}

void tsr__identity_init(tsr__identity *identity)
{
    memset(identity, 0, sizeof *identity);
    identity->job_id = tsr__env_text("TESSERA_JOB_ID");
    if (identity->job_id != NULL)
        return;
    identity->torchrun = tsr__env_text("TORCHELASTIC_RUN_ID");
    snprintf(identity->user, sizeof identity->user, "%lu", (unsigned long)geteuid());
    read_slurm(identity, identity->slurm, sizeof identity->slurm);
    /* If /proc is not mounted, the path is empty. */
    ssize_t length =
        readlink("/proc/self/exe", identity->executable, sizeof identity->executable - 1);
    identity->executable[length > 0 ? length : 0] = '\0';
}

static const char *or_null(const char *text)
{
    return text[0] != '\0' ? text : NULL;
}

const char *tsr__identity_text(const tsr__identity *identity, tsr__identity_field field,
                               bool loopback)
{
    const char *slash = strrchr(identity->executable, '/');
    switch (field) {
    case TSR__IDENTITY_JOB_ID:
        return identity->job_id;
    case TSR__IDENTITY_USER:
        return loopback ? or_null(identity->user) : NULL;
    case TSR__IDENTITY_EXECUTABLE:
        return or_null(loopback || slash == NULL ? identity->executable : slash + 1);
    case TSR__IDENTITY_TORCHRUN:
        return identity->torchrun;
    case TSR__IDENTITY_SLURM:
        return or_null(identity->slurm);
    case TSR__IDENTITY_FIELDS:
        break;
    }
    return NULL;
}

const char *tsr__identity_difference(const tsr__identity *identity, tsr__identity_field field,
                                     char *text, size_t size)
{
    /* show only the last SHOWN bytes of a long path, which say more than the first ones */
    enum { SHOWN = 100 };
    const size_t length = strlen(identity->executable);
    const char *path = identity->executable + (length > SHOWN ? length - SHOWN : 0);
    text[0] = '\0';
    switch (field) {
    case TSR__IDENTITY_JOB_ID:
        snprintf(text, size, "has another TESSERA_JOB_ID");
        break;
    case TSR__IDENTITY_USER:
        snprintf(text, size, "runs as another user, this process runs as user %s", identity->user);
        break;
    case TSR__IDENTITY_EXECUTABLE:
        snprintf(text, size, "runs another executable, this process runs '%s%s'",
                 length > SHOWN ? "…" : "", path);
        break;
    case TSR__IDENTITY_TORCHRUN:
        snprintf(text, size, "has another TORCHELASTIC_RUN_ID");
        break;
    case TSR__IDENTITY_SLURM:
        snprintf(text, size, "belongs to another Slurm job or step, this process to %s",
                 identity->slurm[0] != '\0' ? identity->slurm : "none");
        break;
    case TSR__IDENTITY_FIELDS:
        break;
    }
    return text;
}
