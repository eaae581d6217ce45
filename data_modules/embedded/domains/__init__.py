"""The domains of the corpus: sixteen kinds of topics with about ten relations each."""

from data_modules.embedded.domains.goods import ANIMAL, DISH, GARMENT, MACHINE, PLANT, VEHICLE
from data_modules.embedded.domains.places import BRIDGE, FESTIVAL, MUSEUM, RIVER, TOWN
from data_modules.embedded.domains.works import BAND, COMPANY, INSTRUMENT, NOVEL, SPORT

DOMAINS = (
    TOWN, RIVER, BRIDGE, MUSEUM, FESTIVAL, NOVEL, BAND, COMPANY,
    INSTRUMENT, SPORT, ANIMAL, PLANT, DISH, MACHINE, VEHICLE, GARMENT,
)  # fmt: skip
