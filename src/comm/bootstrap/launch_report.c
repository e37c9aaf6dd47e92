#include "comm/bootstrap/launch_report.h"

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/environment.h"

void tsr__launch_report_member(void)
{
    char line[64];
    struct stat pipe;
    int fd, number, length = 0;
    unsigned long long inode;
    const char *launch = tsr__env_text("TESSERA_LAUNCH");
    if (launch == NULL || sscanf(launch, "%d:%llu:%d%n", &fd, &inode, &number, &length) != 3 ||
        launch[length] != '\0')
        return;
    /* A program between the launcher and this process may have closed the pipe, so that the
     * descriptor is now that of another file. */
    if (fstat(fd, &pipe) != 0 || pipe.st_ino != inode)
        return;
    length = snprintf(line, sizeof line, "%d member\n", number);
    /* Without the report the launcher only knows less, so a failure is ignored. */
    (void)!write(fd, line, (size_t)length);
}
