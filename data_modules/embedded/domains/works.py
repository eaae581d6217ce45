"""Domains of works: novels, bands, instruments, sports, and the companies that sell things."""

from data_modules.embedded.facts import Domain

NOVEL = Domain.parse(
    "novel",
    "{}",
    "a novel",
    """
plot: plot: What is it about?: what it is about
    is about {} | tells of {} > deals with {} | has {} at its heart
author: person: Who wrote it?: who wrote it
    was written by {} | is by {} > comes from the pen of {} | has {} as its author
translator: person: Who translated it?: who translated it
    was translated by {} | was put into English by {} > owes its English version to {} | reached the English through {}
year: year: When did it come out?: when it came out
    was published in {} | appeared in {} > came out in {} | has been in print since {}
film: year: When was it filmed?: when it was filmed
    was made into a film in {} | was filmed in {} > came to the cinema in {} | reached the screen in {}
pages: count 90 990: How long is it?: how long it is
    has {} pages | is {} pages long > fills {} pages | runs to {} pages
audience: audience: Who is it for?: who it is for
    was written for {} | is meant for {} > is aimed at {} | has {} in mind
critics: polar.critics: What did critics say?: what critics said
success: polar.success: Did it sell well?: how it sold
ending: polar.ending: How does it end?: how it ends
""",
)
BAND = Domain.parse(
    "band",
    "{}",
    "a band",
    """
genre: genre: What music do they play?: what music they play
    plays {} | is known for {} > performs {} | is all about {}
early_genre: genre: What did they play at first?: what they played at first
    began with {} | at first played {} > started out with {} | performed {} in the early days
founder: trade: Who started it?: who started it
    was founded by {} | was formed by {} > was started by {} | owes its existence to {}
singer: person: Who sings?: who sings
    has {} as its singer | is fronted by {} > has the voice of {} | lets {} sing
drummer: person: Who plays the drums?: who plays the drums
    has {} on the drums | has {} as its drummer > gets its beat from {} | relies on the drumming of {}
year: year: When was it formed?: when it was formed
    was formed in {} | came together in {} > dates from {} | got going in {}
tour: year: When was the first tour?: when the first tour was
    first went on tour in {} | toured first in {} > hit the road in {} | gave concerts abroad from {} on
origin: place: Where does it come from?: where it comes from
    comes from {} | was formed in {} > has its roots in {} | calls {} home
active: polar.active: Is it still around?: whether it is still around
critics: polar.critics: What do critics say?: what critics say
""",
)
COMPANY = Domain.parse(
    "company",
    "the {} Company",
    "a family firm",
    """
product: product: What does it make?: what it makes
    makes {} | sells {} > produces {} | has {} on offer
first_product: product: What did it make at first?: what it made at first
    at first made {} | began by selling {} > started out with {} | offered {} in the early days
founder: trade: Who founded it?: who founded it
    was founded by {} | was set up by {} > was started by {} | owes its existence to {}
owner: person: Who owns it?: who owns it
    belongs to {} | is owned by {} > is in the hands of {} | is the property of {}
manager: person: Who runs it?: who runs it
    is managed by {} | has {} as its manager > is run by {} | is headed by {}
year: year: When was it founded?: when it was founded
    was founded in {} | opened its first shop in {} > dates from {} | has existed since {}
staff: count 20 6000: How many people work there?: how many people work there
    has {} employees | employs {} people > gives work to {} people | has a staff of {}
crisis: cause: Why did it nearly close?: why it nearly closed
    nearly closed because of {} | almost failed after {} > was close to its end owing to {} | got into trouble over {}
active: polar.active: Is it still around?: whether it is still around
success: polar.success: Did its first goods sell well?: how its first goods sold
""",
)
INSTRUMENT = Domain.parse(
    "instrument",
    "the {}",
    "a musical instrument",
    """
playing: playing: How is it played?: how it is played
    is played by {} | sounds by {} > makes music by {} | is handled by {}
material: material: What is it made of?: what it is made of
    has a body of {} | is made of {} > consists mainly of {} | is built from {}
case: material: What is its case made of?: what its case is made of
    comes in a case of {} | is kept in a case of {} > is carried in a box of {} | travels in a container of {}
genre: genre: What music is it used for?: what music it is used for
    is used for {} | is typical of {} > belongs to {} | is heard in {}
inventor: person: Who invented it?: who invented it
    was invented by {} | was first built by {} > was thought up by {} | is the creation of {}
player: person: Who plays it best?: who plays it best
    was made popular by {} | is best played by {} > won its fame through {} | has its greatest master in {}
year: year: When was it invented?: when it was invented
    was invented in {} | was first built in {} > dates from {} | has existed since {}
loud: polar.loud: Is it loud?: how loud it is
learn: polar.learn: Is it hard to learn?: how hard it is to learn
weight: polar.weight: Is it heavy?: how heavy it is
""",
)
SPORT = Domain.parse(
    "sport",
    "{}",
    "a sport",
    """
equipment: equipment: What is it played with?: what it is played with
    is played with {} | requires {} > needs {} | cannot do without {}
season: season: When is it played?: when it is played
    is played {} | has its matches {} > goes on {} | is practised {}
setting: setting: Where is it played?: where it is played
    is played {} | is at home {} > takes place {} | has its fans {}
inventor: trade: Who invented it?: who invented it
    was invented by {} | was thought up by {} > was the idea of {} | owes its existence to {}
players: count 2 40: How many play in a team?: how many play in a team
    has {} players in a team | needs teams of {} > puts {} people on each side | has sides of {} people
champion: person: Who is the champion?: who the champion is
    has {} as its champion | was last won by {} > is dominated by {} | has its best player in {}
year: year: When did it begin?: when it began
    was first played in {} | goes back to {} > began in {} | has existed since {}
organiser: person: Who organises it?: who organises it
    is organised by {} | has {} as its organiser > is arranged by {} | is overseen by {}
legal: polar.legal: Is it allowed?: whether it is allowed
learn: polar.learn: Is it hard to learn?: how hard it is to learn
crowd: polar.crowd: Do many people watch it?: whether many people watch it
""",
)
