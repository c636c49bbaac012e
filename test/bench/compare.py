#!/usr/bin/env python3
"""compare.py BASE [--build DIR] [--rounds N] [--quick]: what the changes since commit BASE did to speed.

Builds BASE in a folder of its own, then times both programs in turn, so that whatever else the machine does meets
both alike. Of each round the two times make one ratio; the table shows their median and their spread. A spread that
includes 1 shows no change. It judges nothing: a noisy machine fails no test.
"""
import argparse
import datetime
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def run(command, **options):
    done = subprocess.run(command, cwd=ROOT, text=True, capture_output=True, **options)
    if done.returncode:
        last = (done.stderr or done.stdout).strip().splitlines()[-1:] or ['']
        sys.exit(f'compare: {" ".join(map(str, command))}: exit status {done.returncode}: {last[0]}')
    return done.stdout


def processor():
    names = [line.split(':', 1)[1].strip() for line in open('/proc/cpuinfo') if line.startswith('model name')]
    return names[0] if names else platform.machine()


def build_base(commit, folder):
    """The program of that commit; built once."""
    program = folder / 'build' / 'potluck'
    if program.exists():
        return program
    folder.mkdir(parents=True, exist_ok=True)
    archive = subprocess.run(['git', 'archive', commit], cwd=ROOT, capture_output=True, check=True).stdout
    subprocess.run(['tar', '-x', '-C', folder], input=archive, check=True)
    clean = {k: v for k, v in os.environ.items() if k not in ('MAKEFLAGS', 'MAKELEVEL', 'BUILD', 'MFLAGS')}
    print(f'building {commit[:12]}', file=sys.stderr)
    run(['make', '-C', folder, '-s', f'-j{os.cpu_count()}', 'NVCC=', 'build/potluck', 'fast'], env=clean)
    return program


def measure(program, precision, sizes, out):
    """Seconds a sample, of one thread's processor time, by what was measured."""
    size_options = [x for size in sizes for x in ('--size', size)]
    run([program, 'bench', '--only', 'steps', '--steps', '2', '--threads', '1', '--precision', precision, '--json', out,
         *size_options])
    rows = json.loads(out.read_text())['rows']
    return {f'step of {r["size"]}, {precision}': r['sample_s'] for r in rows if r['section'] == 'step'}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('base', help='a commit, such as HEAD~1')
    parser.add_argument('--build', default='build', help='where the program is built (default: build)')
    parser.add_argument('--rounds', type=int, default=5, help='pairs of measurements (default: 5)')
    parser.add_argument('--quick', action='store_true', help='the smallest model alone, three rounds')
    options = parser.parse_args()
    if options.rounds < 1:
        parser.error('--rounds: expected 1 or more')
    rounds = 3 if options.quick else options.rounds
    sizes = ['demo'] if options.quick else ['demo', 'small']
    base = run(['git', 'rev-parse', '--verify', '--quiet', options.base + '^{commit}']).strip()
    now = run(['git', 'describe', '--always', '--dirty', '--abbrev=12']).strip()
    build = (ROOT / options.build).resolve()
    programs = {'base': build_base(base, build / 'compare' / base[:12]), 'now': build / 'potluck'}
    out = build / 'compare' / 'one.json'
    times = {}
    for i in range(rounds):
        # Which one goes first changes: the first may find a cooler processor.
        for name in ('base', 'now') if i % 2 == 0 else ('now', 'base'):
            for precision in ('float32', 'bf16'):
                for what, seconds in measure(programs[name], precision, sizes, out).items():
                    times.setdefault(what, {}).setdefault(name, []).append(seconds)
        print(f'\r{i + 1} of {rounds} rounds', end='', file=sys.stderr)
    print(file=sys.stderr)
    record = {'machine': processor(), 'cores': os.cpu_count(),
              'date': datetime.date.today().isoformat(), 'base': base, 'now': now,
              'command': f'make bench-compare BASE={options.base}', 'rows': []}
    print(f'{base[:12]} against {now}, {rounds} rounds, ms a sample of one thread (median); ratio below 1: faster now')
    print(f'{"":28} {"base":>9} {"now":>9} {"ratio":>7}  spread')
    for what, t in times.items():
        ratios = [b / a for a, b in zip(t['base'], t['now'])]
        row = {'what': what, 'base_s': t['base'], 'now_s': t['now'], 'ratio': statistics.median(ratios)}
        record['rows'].append(row)
        print(f'{what:28} {1e3 * statistics.median(t["base"]):9.2f} {1e3 * statistics.median(t["now"]):9.2f} '
              f'{row["ratio"]:7.3f}  {min(ratios):.3f} to {max(ratios):.3f}')
    out.unlink()
    (build / 'compare' / 'compare.json').write_text(json.dumps(record, indent=1) + '\n')


main()
