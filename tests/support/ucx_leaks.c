/* Leaks that the leak checker ignores in programs that load UCX. The checker prescribes the
 * function's name. */

const char *__lsan_default_suppressions(void);

/* UCX leaks memory of its own. The dynamic loader keeps the text of its last failure. */
const char *__lsan_default_suppressions(void)
{
    return "leak:libucm.so\nleak:libucp.so\nleak:libucs.so\nleak:libuct.so\nleak:libuct_\n"
           "leak:ld-linux\n";
}
