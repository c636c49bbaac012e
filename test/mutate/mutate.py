"""mutate.py - would a test notice a wrong line? Changes one line of the code at a time and plays the tests of its folder.

    mutate.py [--folder FOLDER] [--n N] [--seed SEED] [--minutes M] [--store]    N changes of a folder (default: 40 of each);
                                       --store continues the stored sample if it has the same seed, so a sample can be taken in slices
    mutate.py --list FILE [--suites EXPRESSION]            the changes of a file: path, TAB, was, TAB, became
    mutate.py --table                                           rates.json as the table of paper/results.md

Works in a copy of the tree, build/mutate/tree. A change that does not compile, or leaves every object as it was, does not count;
nor does one that equivalent.tsv lists, with the reason why no test can notice it.
"""
import argparse
import fcntl
import functools
import json
import os
import random
import re
import shutil
import subprocess
import sys
import time

import library
import operators
from library import ROOT, TREE, WORK, run

HERE = os.path.dirname(os.path.abspath(__file__))
RATES, EQUIVALENT = os.path.join(HERE, 'rates.json'), os.path.join(HERE, 'equivalent.tsv')

# A folder's tests: suites of test/suites.sh by name, folders of unit tests; then the aim of its rate in percent.
FOLDERS = {
    'ref': (r'golden (dalle|quant|optim|outer|aggregate|vqgan|gpt2|clip|wire|protocol) with ref|pairs of fast', ['ref', 'runtime'],
            90),
    'runtime': (r'golden (dalle|optim|outer|vqgan|gpt2|calculator) with fast', ['ref', 'runtime'], 90),
    'fast': (r'golden (dalle|quant|optim|outer|aggregate|vqgan|gpt2|clip|wire) with fast|golden values with fast.*|pairs of fast.*', ['fast'], 90),
    'cuda': (r'golden \w+ with cuda-on-cpu.*|pairs of cuda-on-cpu', ['cuda'], 85),
    'data': (r'golden (tokenizer|clip|vqgan|gpt2|dalle) with fast', ['data'], 85),
    'net': (r'golden (wire|protocol|aggregate) with ref', ['net', 'hivemind', 'http', 'libp2p', 'loop'], 85),
}
# Parts of files' names, and the pairs of that operation.
PAIRS = [('attention', 'attention'), ('compress', 'encode'), ('quantile8', 'quantile8'), ('uniform8', 'uniform8'),
         ('meanstd16', 'meanstd16'), ('centered_clip', 'centered_clip'), ('median', 'median'), ('gumbel', 'gumbel'), ('codebook', 'code'),
         ('winograd', 'conv'), ('conv', 'conv'), ('gemm', 'linear'), ('linear', 'linear'), ('feedforward', 'ffn'), ('norm', 'norm'),
         ('loss', 'loss'), ('average', 'average'), ('quant', 'quant'), ('lamb', 'lamb'), ('adam', 'adam'), ('moments', 'block'),
         ('embed', 'embed'), ('shift', 'shift'), ('rotary', 'rotary'), ('bucket_means', 'encode')]
QUICK_S = 1.5
SOURCES = ('.c', '.cu', '.cuh', '.inc', '.h')


def copy_tree():
    """Brings the copy up to date. Unchanged files keep their times, so that little is compiled again."""
    names = subprocess.run(['git', 'ls-files', '-z', '--cached', '--others', '--exclude-standard'], cwd=ROOT, check=True,
                           stdout=subprocess.PIPE).stdout.decode().split('\0')
    present = set()
    for name in sorted(filter(None, names)):
        source, copy = os.path.join(ROOT, name), os.path.join(TREE, name)
        if not os.path.isfile(source):
            continue
        present.add(name)
        with open(source, 'rb') as f:
            new = f.read()
        try:
            with open(copy, 'rb') as f:
                if f.read() == new:
                    continue
        except OSError:
            os.makedirs(os.path.dirname(copy), exist_ok=True)
        with open(copy, 'wb') as f:
            f.write(new)
        shutil.copymode(source, copy)
    for folder, _, files in os.walk(TREE):
        if os.path.relpath(folder, TREE).split(os.sep)[0] != 'build':
            for f in files:
                path = os.path.join(folder, f)
                if os.path.relpath(path, TREE) not in present:
                    os.unlink(path)


def read(path):
    with open(os.path.join(TREE, path)) as f:
        return f.read()


class Tests:
    """The suites of a folder, in the order that finds a wrong line soonest."""

    def __init__(self, folder, rows, only):
        pattern, folders, self.aim = FOLDERS[folder]
        self.units = {f[:-2]: os.path.relpath(base, os.path.join(TREE, 'test/unit')) for folder in folders
                      for base, _, files in os.walk(os.path.join(TREE, 'test/unit', folder)) for f in files if f.endswith('.c')}
        self.suites = {name: command for _, _, name, command in rows if re.fullmatch(pattern, name)}
        if 'pairs of fast' in self.suites:  # the large shapes take minutes
            self.suites['pairs of fast'] += ' --quick'
        self.suites.update(('unit ' + u, 'build/test/' + u) for u in self.units)
        self.suites = {s: c for s, c in self.suites.items() if re.search(only, s)}
        self.of_folder = {}  # of net/: the unit tests that the table of test/README.md names, or that lie in the folder of the same name
        for row in read('test/README.md').split('\n') if folder == 'net' else ():
            cells = row.split('|')
            if len(cells) > 6:
                for name in re.findall(r'`(net[\w/]*)`', cells[1]):
                    mirrored = [u for u, of in self.units.items() if 'net/' + of == name]
                    self.of_folder[name] = sorted(set(re.findall(r'`(\w+)`', cells[4]) + mirrored))
        self.killers, self.seconds, self.passed = {}, {}, {}
        self.load(folder)

    def play(self, suite, more=''):
        """Whether a suite passes; None if it takes far longer than it ever did."""
        known = self.seconds.get(suite, 20)
        if suite.startswith('unit ') and suite.split()[1] in library.REPLACES:
            library.must(library.make(self.suites[suite]))
        rc, seconds, _ = run(self.suites[suite] + more, 60 + 8 * known)
        if rc == 0 and not more:
            self.seconds[suite] = seconds
        return None if rc is None else rc == 0

    def sound(self, suite, more=''):
        """Whether a suite that killed passes on the unchanged tree; asked once."""
        if (suite, more) not in self.passed:
            self.passed[suite, more] = self.play(suite, more)
        return self.passed[suite, more]

    def load(self, folder):
        self.file = os.path.join(WORK, 'seconds-%s.json' % folder)
        try:
            with open(self.file) as f:
                self.seconds = json.load(f)
        except (OSError, ValueError):
            pass

    def save(self):
        with open(self.file, 'w') as f:
            json.dump(self.seconds, f)

    def order(self, path, built):
        """What killed a change of this file before, then what is called like it, then the quickest. Unit tests that are not linked to the
        file are left out. In net/, with its hundred unit tests, those of other folders are played only if they take less than QUICK_S."""
        stem, folder = os.path.splitext(os.path.basename(path))[0], os.path.dirname(path)
        names = next((self.of_folder[f] for f in (folder, os.path.dirname(folder)) if f in self.of_folder), [])
        known, parts = self.killers.get(path, []), set(stem.split('_')) | set(folder.split('/')[1:])

        def rank(suite):
            alike = stem in suite or bool(parts & set(re.split(r'\W+|_', suite)))
            return (known.index(suite) if suite in known else 99, not (alike and self.seconds.get(suite, 1) < 5), self.seconds.get(suite, 1))

        def is_played(suite):
            if not suite.startswith('unit '):
                return True
            unit = suite.split()[1]
            return built.may_notice(unit, path) and (not self.of_folder or unit in names or self.seconds.get(suite, 0) < QUICK_S)
        return sorted(filter(is_played, self.suites), key=rank)

    def kill(self, path, built):
        """The first suite that fails, and the arguments it failed with; or None. Of pairs, those of the file's operation are played
        before all of them."""
        pairs = [s for s in self.suites if s.startswith('pairs of ')]
        operation = next((of for part, of in PAIRS if part in os.path.basename(path)), None)
        first = [(s, ' --filter ' + operation) for s in pairs if operation]
        for suite, more in first + [(s, '') for s in self.order(path, built)]:
            if not self.play(suite, more):
                if not more:
                    known = self.killers.setdefault(path, [])
                    if suite in known:
                        known.remove(suite)
                    known.insert(0, suite)
                return suite, more
        return None


class Mutant:
    def __init__(self, path, line, start, end, text, kind, place=0):
        self.path, self.line, self.kind, self.place = path, line, kind, place
        self.lines = read(path).split('\n')
        old = self.lines[line]
        self.lines[line] = old[:start] + text + old[end:]
        self.was, self.became = old.strip(), self.lines[line].strip()

    def write(self, lines):
        with open(os.path.join(TREE, self.path), 'w') as f:
            f.write('\n'.join(lines))


def candidates(top, seed, after=-1):
    """Changes of a folder in a random order: each line that can be changed once, by one of the kinds that fit it. A line's place in the
    order, between 0 and 1, depends on the seed and on the line alone: an order outlasts changes of other lines. Those up to `after` are
    left out."""
    found = []
    for folder, _, files in sorted(os.walk(os.path.join(TREE, top))):
        for name in sorted(files):
            path = os.path.relpath(os.path.join(folder, name), TREE)
            if not name.endswith(SOURCES) or path.startswith('data/demo/') or name == 'html_names.inc':
                continue
            text, seen = read(path), {}
            for i, (code, line) in enumerate(zip(operators.blank(text).split('\n'), text.split('\n'))):
                if not name.endswith('.h') or code.startswith('    '):  # a header's other lines are declarations
                    of_line = operators.changes(code, line)
                    seen[line] = seen.get(line, -1) + 1  # of lines that are alike, each has its own place
                    rng = random.Random('%d %s %s%s' % (seed, path, line.strip(), ' ' * seen[line]))
                    place = rng.random()
                    if of_line and place > after:
                        found.append((place, path, i, of_line, rng))
    for place, path, i, of_line, rng in sorted(found, key=lambda f: f[:3]):
        wanted = rng.choice(sorted({c[0] for c in of_line}))
        kind, start, end, text = rng.choice([c for c in of_line if c[0] == wanted])
        yield Mutant(path, i, start, end, text, kind, place)


def listed(path):
    """The changes of a file. A line that holds the text twice is changed where it stands first."""
    with open(path) as f:
        for row in f:
            if row.startswith('#') or row.count('\t') < 2:
                continue
            name, was, became = row.rstrip('\n').split('\t')[:3]
            hits = [(i, x.index(was)) for i, x in enumerate(read(name).split('\n')) if was in x]
            if not hits:
                print('not found %s: %s' % (name, was), flush=True)
            for i, at in hits:
                yield Mutant(name, i, at, at + len(was), became, 'listed')


def equivalents():
    with open(EQUIVALENT) as f:
        return {tuple(x.strip() for x in row.split('\t')[:3]) for row in f if row.count('\t') >= 3}


def judge(tests, built, mutant, originals, known):
    """killed, survived or why it does not count; and the suite that failed."""
    path = mutant.path
    if (path, mutant.was, mutant.became) in known:
        return 'equivalent', None
    if path not in built.made_from:
        return 'not built', None
    original = read(path).split('\n')
    if path not in originals:
        originals[path] = built.fingerprint(path)
    mutant.write(mutant.lines)
    try:
        if not built.compile_file(path):
            return 'does not compile', None
        if built.fingerprint(path) == originals[path]:
            return 'identical', None
        if built.link(built.affected(path)):
            return 'does not link', None
        by = tests.kill(path, built)
    finally:
        mutant.write(original)
        built.restore_file(path)
    if by and by not in tests.passed:
        built.link(())
    if by and not tests.sound(*by):
        sys.exit('%s%s fails without any change' % by)
    return ('killed', ''.join(by)) if by else ('survived', None)


def play(folder, mutants, n, built, rows, only, minutes, rate, store):
    """Judges changes until the sample `rate` has n that were killed or survived; store(rate) after each."""
    tests = Tests(folder, rows, only)
    built.link_programs(tests.units)
    end = time.monotonic() + 60 * minutes
    originals, uncounted, known = {}, {}, equivalents()
    for mutant in mutants:
        if rate['changes'] == n or time.monotonic() > end:
            break
        verdict, by = judge(tests, built, mutant, originals, known)
        tests.save()
        if verdict in ('killed', 'survived') or mutant.kind == 'listed':
            print('%-9s %s:%d  [%s]%s\n          - %s\n          + %s' % (verdict, mutant.path, mutant.line + 1, mutant.kind,
                  '  by ' + by if by else '', mutant.was, mutant.became or '(nothing)'), flush=True)
        if verdict == 'survived':
            rate['survivors'].append({'line': '%s:%d' % (mutant.path, mutant.line + 1), 'was': mutant.was, 'became': mutant.became})
        elif verdict in ('killed', 'equivalent'):
            rate[verdict] += 1
        else:
            uncounted[verdict] = uncounted.get(verdict, 0) + 1
        rate.update(changes=rate['killed'] + len(rate['survivors']), up_to=mutant.place)
        store(rate)
    others = ', '.join('%d %s' % (c, v) for v, c in sorted(uncounted.items()) + [('equivalent', rate['equivalent'])] if c)
    print('%s: %d of %d changes killed (%.0f %%)%s' % (folder, rate['killed'], rate['changes'],
          100 * rate['killed'] / max(1, rate['changes']), '; ' + others if others else ''), flush=True)


def load_rates():
    try:
        with open(RATES) as f:
            return json.load(f)
    except OSError:
        return {}


def store(folder, rate):
    """Writes a rate with the day and the commit of its latest change."""
    commit = subprocess.run(['git', 'log', '-1', '--format=%h'], cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout.decode().strip()
    rates = load_rates()
    rates[folder] = dict(rate, drawn=time.strftime('%Y-%m-%d, ') + commit)
    with open(RATES, 'w') as f:
        json.dump(rates, f, indent=1, sort_keys=True)
        f.write('\n')


def write_table():
    """Replaces the rows of the table in paper/results.md."""
    path, rates = os.path.join(ROOT, 'paper/results.md'), load_rates()
    rows = ['| folder | changes | killed | rate % | aim % | drawn on, at commit | command |', '| --- | --- | --- | --- | --- | --- | --- |']
    for folder, (_, _, aim) in FOLDERS.items():
        if folder in rates:
            r = rates[folder]
            rows.append('| `%s` | %d | %d | %.0f | %d | %s | `make mutate FOLDER=%s N=%d SEED=%d` |' % (
                folder, r['changes'], r['killed'], 100 * r['killed'] / max(1, r['changes']), aim, r['drawn'], folder, r['changes'],
                r['seed']))
    with open(path) as f:
        text = f.read()
    begin = text.index(rows[0][:20])
    end = re.compile(r'\n(?!\|)').search(text, begin).start()
    with open(path, 'w') as f:
        f.write(text[:begin] + '\n'.join(rows) + text[end:])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--folder', choices=FOLDERS, action='append')
    parser.add_argument('--n', type=int, default=40)
    parser.add_argument('--minutes', type=float, default=1e9, help='of a folder; what was played by then counts')
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--list')
    parser.add_argument('--suites', default='', help='only suites whose names match this expression')
    parser.add_argument('--store', action='store_true')
    parser.add_argument('--table', action='store_true')
    o = parser.parse_args()
    if o.table:
        return write_table()
    os.makedirs(TREE, exist_ok=True)
    lock = open(os.path.join(WORK, 'lock'), 'w')
    fcntl.flock(lock, fcntl.LOCK_EX)  # there is one copy: a second run waits for the first
    copy_tree()
    mutants = list(listed(o.list)) if o.list else []
    folders = [r for r in FOLDERS if any(m.path.startswith(r + '/') for m in mutants)] if o.list else o.folder or list(FOLDERS)
    built = library.Library('cuda' in folders)
    rows = [row.split('\t', 3) for row in run('BUILD=build sh test/suites.sh', 120)[2].splitlines() if row.count('\t') == 3]
    for folder in folders:
        stored, rate = load_rates().get(folder, {}), {'killed': 0, 'changes': 0, 'equivalent': 0, 'survivors': [], 'seed': o.seed, 'up_to': -1}
        if o.list:
            own, n, keep = [m for m in mutants if m.path.startswith(folder + '/')], -1, lambda rate: None
        else:
            if o.store and stored.get('seed') == o.seed and 'up_to' in stored:
                rate = stored
            own, n = candidates(folder, o.seed, rate['up_to']), o.n
            keep = functools.partial(store, folder) if o.store else lambda rate: None
        play(folder, own, n, built, rows, o.suites, o.minutes, rate, keep)


if __name__ == '__main__':
    main()

