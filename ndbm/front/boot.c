/*
 * Linked into the engine's library. Go would have the runtime start when the library is loaded; the build takes that entry out of the
 * library's initializers, and the front library calls this when it wants it.
 */
#if defined(__x86_64__)
#define RUNTIME_ENTRY _rt0_amd64_linux_lib
#elif defined(__aarch64__)
#define RUNTIME_ENTRY _rt0_arm64_linux_lib
#else
#error "name this architecture's entry of Go's runtime for C libraries"
#endif

void RUNTIME_ENTRY(int argc, char **argv, char **envp);
void flashdbm_engine_boot(int argc, char **argv, char **envp);

void flashdbm_engine_boot(int argc, char **argv, char **envp)
{
	RUNTIME_ENTRY(argc, argv, envp);
}
