# __init__.py imports these on first use.
from .model_card import make_model_card as make_model_card
from .model_card import write_model_card as write_model_card
from .upload import Uploads as Uploads
