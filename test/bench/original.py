"""DALLE-pytorch 1.6.6, where it is installed without the packages that it imports for pictures and
downloads.

    original.stand_in()     before `import dalle_pytorch`
    original.dalle(...)     its transformer with the run's choices
"""

import importlib.abc
import importlib.machinery
import sys
import types


class Nothing(types.ModuleType):
    """Stands for a package that is imported for work that nobody is asked to do here (downloads of
    codecs, plots): whatever is taken from it is another one."""

    __path__ = []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Nothing(name)

    def __call__(self, *args, **kwargs):
        return self

    def __mro_entries__(self, bases):
        return (object,)


class Stand(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    NAMES = {"taming", "omegaconf", "requests", "PIL", "yaml", "tqdm", "dall_e", "scipy", "torchvision",
             "transformers", "tokenizers", "youtokentome", "ftfy", "regex"}

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in self.NAMES:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return Nothing(spec.name)

    def exec_module(self, module):
        pass


def stand_in():
    sys.meta_path.append(Stand())  # last: what is installed comes first


def dalle(width, heads, head, blocks, text, grid, words, codes, inference=False):
    """Rows, columns, rows, rows, a convolution last; equal layers shared, embeddings tied [TTT
    3.1]."""
    import dalle_pytorch

    kinds = ["axial_row", "axial_col", "axial_row", "axial_row"]
    kinds = [kinds[i % 4] for i in range(blocks - 1)] + ["conv_like"]
    groups = [i % 4 for i in range(blocks - 1)] + [min(blocks - 1, 4)]
    vae = dalle_pytorch.DiscreteVAE(image_size=2 * grid, num_layers=1, num_tokens=codes,
                                    codebook_dim=8, hidden_dim=8)
    return dalle_pytorch.DALLE(
        dim=width, vae=vae, num_text_tokens=words, text_seq_len=text, depth=blocks, heads=heads,
        dim_head=head, reversible=not inference, attn_types=kinds, shared_attn_ids=groups,
        shared_ff_ids=groups, rotary_emb=True, shift_tokens=True, share_input_output_emb=True,
        optimize_for_inference=inference)
