"""library.py - builds what mutate.py tests. libpotluck is one shared library, to which programs and unit tests are linked once;
so a change costs the compilation of the objects made from its file and one link; taking it back costs nothing."""
import hashlib
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
WORK = os.path.join(ROOT, os.environ.get('BUILD', 'build'), 'mutate')
TREE = os.path.join(WORK, 'tree')
MEMORY_MAX = 12 << 30  # bytes of addresses of a process: more than any test takes, less than the machine has
os.environ.pop('BUILD', None)  # the copy has a build of its own
os.environ['CCACHE_NOHASHDIR'] = '1'  # so that the copy shares what was compiled elsewhere
# Arguments of other types are no change that anybody overlooks: the compiler warns of them.
REFUSED = ' -Werror=int-conversion -Werror=incompatible-pointer-types'
# These tests replace functions when they are linked (LDWRAP), or need objects besides the library's: make links them.
REPLACES = {'memory', 'memory_ref', 'memory_libp2p', 'memory_hivemind', 'attacks', 'simulator'}


def run(command, limit=600, stderr=True):
    """Exit status (None after the limit), seconds, output. Whatever the command started ends with it."""
    def before():
        os.setsid()
        os.nice(int(os.environ.get('NICE', 10)))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_MAX, MEMORY_MAX))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    begun = time.monotonic()
    with tempfile.TemporaryFile('w+', errors='replace') as log:
        p = subprocess.Popen(['sh', '-c', command], cwd=TREE, stdin=subprocess.DEVNULL, stdout=log,
                             stderr=log if stderr else subprocess.DEVNULL, preexec_fn=before)
        try:
            rc = p.wait(limit)
        except subprocess.TimeoutExpired:
            rc = None
        try:
            os.killpg(p.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        p.wait()
        log.seek(0)
        return rc, time.monotonic() - begun, log.read()


def must(command):
    rc, _, text = run(command, 1800)
    if rc:
        sys.exit('failed: %s\n%s' % (command[:200], text[-2000:]))


def make(arguments):
    cached = 'ccache ' if shutil.which('ccache') else ''
    compilers = ' '.join('%s="%s"' % (v, os.environ.get(v) or cached + of) for v, of in (('CC', 'gcc'), ('CXX', 'g++')))
    return 'make --no-print-directory -s -j2 BUILD=build NVCC= %s %s' % (compilers, arguments)


def words(expression):
    """What one of make's expressions stands for."""
    return run(make("--eval='show: ; @echo $(%s)' show" % expression), 120, False)[2].split()


class Library:
    def __init__(self, emulated_device):
        self.libs = ' '.join(words('LIBS'))
        self.objects = {'build/libmutant.so': words('LIB_O'),
                        'build/libpl_fast.so': words('call obj,$(FAST_C)') + words('call obj,$(filter $(FAST_NEEDS),$(REF_C))')}
        if emulated_device:
            self.objects['build/libpl_cuda_on_cpu.so'] = words('EMU_O') + words('call obj,$(CUDA_NEEDS)')
        self.program = words('PROGRAM_O')
        everything = sorted(set(sum(self.objects.values(), [])))
        must(make(' '.join(everything + self.program)))
        self.compile = {}
        for line in run(make('-n -B ' + ' '.join(everything)), 300)[2].splitlines():
            m = re.search(r' -c -o (\S+\.o) ', line)
            if m:
                self.compile[m[1]] = line
        self.made_from = {}  # file -> objects, by the compiler's own lists
        for o in everything:
            try:
                with open(os.path.join(TREE, o[:-2] + '.d')) as f:
                    for name in re.sub(r'\\\n', ' ', f.read().split('\n\n')[0]).split()[1:]:
                        self.made_from.setdefault(os.path.normpath(name), []).append(o)
            except OSError:
                pass
        self.closure = {}
        self.stale = set()  # libraries that hold objects of a change that has been taken back
        self.link(self.objects)

    def link(self, libraries):
        """Links libraries anew, and those that are stale; 0 if all are whole."""
        flags = {'build/libmutant.so': ('cc', self.libs), 'build/libpl_fast.so': ('cc -fopenmp', '-lopenblas -lm'),
                 'build/libpl_cuda_on_cpu.so': ('c++', '-lm')}
        for name in sorted(set(libraries) | self.stale):
            compiler, libs = flags[name]
            script = '' if name == 'build/libmutant.so' else '-Wl,--version-script=runtime/backend.map'
            rc = run('%s -shared %s -o %s %s %s' % (compiler, script, name, ' '.join(self.objects[name]), libs), 300)[0]
            if rc != 0:
                return 1
            self.stale.discard(name)
        return 0

    def link_programs(self, units):
        rest = '-Wl,-rpath,%s build/libmutant.so %s' % (os.path.join(TREE, 'build'), self.libs)
        must('cc -o build/potluck %s %s' % (' '.join(self.program), rest))
        os.makedirs(os.path.join(TREE, 'build/test'), exist_ok=True)
        must(make(' '.join('build/obj/test/unit/%s/%s.o' % (folder, unit) for unit, folder in units.items())))
        for unit, folder in units.items():
            if unit in REPLACES:
                must(make('build/test/' + unit))
            else:
                must('cc -o build/test/%s build/obj/test/unit/%s/%s.o -lcmocka %s' % (unit, folder, unit, rest))
        self.link_closure(units)

    def link_closure(self, units):
        """For each unit test, the library's objects that a linker would take for it: no other can change what it does."""
        of_unit = {unit: 'build/obj/test/unit/%s/%s.o' % (folder, unit) for unit, folder in units.items()}
        defined_by, needs, library = {}, {}, self.objects['build/libmutant.so']
        for line in run('nm -A -g -P %s' % ' '.join(library + list(of_unit.values())), 300, False)[2].splitlines():
            name, symbol, kind = line.split()[:3]
            name = name.rstrip(':')
            needs.setdefault(name, set())
            if kind in 'Uvw':
                needs[name].add(symbol)
            elif name.startswith('build/') and name in library:
                defined_by[symbol] = name
        for unit, first in of_unit.items():
            taken, left = set(), [first]
            while left:
                more = {defined_by[s] for s in needs.get(left.pop(), ()) if s in defined_by} - taken
                taken |= more
                left += more
            self.closure[unit] = taken

    def may_notice(self, unit, path):
        """Whether a unit test is linked to what a file changes. Backends are loaded while it runs, so all may use them."""
        own = set(self.made_from.get(path, ()))
        return self.affected(path) != ['build/libmutant.so'] or unit not in self.closure or bool(own & self.closure[unit])

    def affected(self, path):
        """The libraries that hold objects made from a file."""
        own = set(self.made_from.get(path, ()))
        return [name for name, objects in self.objects.items() if own & set(objects)]

    def fingerprint(self, path):
        """Of the objects that are made from a file."""
        digest = hashlib.sha256()
        for o in self.made_from[path]:
            subprocess.run(['objcopy', '--strip-debug', o, os.path.join(WORK, 'stripped.o')], cwd=TREE, check=True)
            with open(os.path.join(WORK, 'stripped.o'), 'rb') as f:
                digest.update(f.read())
        return digest.hexdigest()

    def compile_file(self, path):
        """Compiles all objects that are made from a file, and says whether that worked. restore_file undoes it."""
        for o in self.made_from[path]:
            shutil.copy(os.path.join(TREE, o), os.path.join(TREE, o + '.kept'))
            if run(self.compile[o] + REFUSED, 300)[0] != 0:
                return False
        return True

    def restore_file(self, path):
        """Brings back the objects from before compile_file. Programs still use the changed ones until `link`."""
        for o in self.made_from[path]:
            kept = os.path.join(TREE, o + '.kept')
            if os.path.exists(kept):
                os.replace(kept, os.path.join(TREE, o))
                os.utime(os.path.join(TREE, o))  # later than the source, which was restored before
        self.stale.update(self.affected(path))
