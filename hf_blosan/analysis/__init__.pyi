# __init__.py imports these on first use.
from .explanation import Explanation as Explanation
from .explanation import Sentence as Sentence
from .explanation import explain as explain
from .figures import compare_word as compare_word
from .maps import Map as Map
from .page import make_page as make_page
